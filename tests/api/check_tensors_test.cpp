// What is refused about devices, dtypes, ranks, shapes, strides and addresses.

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>

#include "support/call.h"
#include "support/errors.h"

namespace parapet {
namespace {

using testing::Call;
using testing::CallShape;
using testing::expect_error;
using testing::expect_refused;
using testing::Extents;
using testing::Tensor;

const CallShape kPacked = {.packed_q = {2, 0, 3}, .packed_k = {4, 1, 2}};

template <class Change>
void refused(const CallShape& shape, std::initializer_list<std::string> parts,
             const Change& change) {
  Call call(shape);
  change(call.tensors);
  expect_refused(parts, [&] { call.run(); });
}

template <class Change>
void refused(std::initializer_list<std::string> parts, const Change& change) {
  refused(CallShape{}, parts, change);
}

TEST(CheckTensors, AcceptsWhatTheOthersStartFrom) {
  EXPECT_NO_THROW(Call().run());
  EXPECT_NO_THROW(Call(kPacked).run());
  EXPECT_NO_THROW(Call({.dtype = DType::kFloat16}).run());
  EXPECT_NO_THROW(Call({.dtype = DType::kBFloat16}).run());
}

TEST(CheckTensors, DevicesAreEqual) {
  refused({"k: expected device cpu as q's, found cuda:1"},
          [](auto& t) { t.k.device = {DeviceType::kCuda, 1}; });
  refused({"q's", "found cpu"}, [](auto& t) { t.q.device = {DeviceType::kCuda, 0}; });
  refused({"lse: expected device cpu"}, [](auto& t) { t.lse->device.type = DeviceType::kCuda; });
  refused(kPacked, {"cu_seqlens_k: expected device cpu"},
          [](auto& t) { t.cu_seqlens_k->device.type = DeviceType::kCuda; });
}

TEST(CheckTensors, CpuIndexDoesNotMatter) {
  Call call;
  call.tensors.q.device.index = -1;
  call.tensors.v.device.index = 3;
  EXPECT_NO_THROW(call.run());
}

// The host cannot read lengths in a GPU's memory, nor copy what is not row-contiguous.
TEST(CheckTensors, ReadsNothingOnAGpu) {
  Call call;
  for (TensorView* view :
       {&call.tensors.q, &call.tensors.k, &call.tensors.v, &call.tensors.out, &*call.tensors.lse}) {
    view->device = {DeviceType::kCuda, 1};
  }
  call.tensors.q.strides[call.tensors.q.rank - 1] = 0;
  expect_error(ErrorCode::kInvalidArgument, {"q: expected a last stride of 1, found 0"},
               [&] { call.run(); });
}

TEST(CheckTensors, Dtypes) {
  refused({"q: expected dtype float32, float16 or bfloat16, found int32"},
          [](auto& t) { t.q.dtype = DType::kInt32; });
  refused({"q: expected dtype", "found unknown"},
          [](auto& t) { t.q.dtype = static_cast<DType>(77); });
  refused({"k: expected dtype float32 as q's, found float16"},
          [](auto& t) { t.k.dtype = DType::kFloat16; });
  refused({"v: expected dtype float32 as q's, found bfloat16"},
          [](auto& t) { t.v.dtype = DType::kBFloat16; });
  refused({.dtype = DType::kFloat16}, {"out: expected dtype float16 as q's, found float32"},
          [](auto& t) { t.out.dtype = DType::kFloat32; });
  refused({"lse: expected dtype float32, found bfloat16"},
          [](auto& t) { t.lse->dtype = DType::kBFloat16; });
  refused(kPacked, {"cu_seqlens_q: expected dtype int32, found float32"},
          [](auto& t) { t.cu_seqlens_q->dtype = DType::kFloat32; });
  const Tensor vector(DType::kFloat32, {2});
  refused({"seqused_k: expected dtype int32, found float32"},
          [&](auto& t) { t.seqused_k = vector; });
  const Tensor integers = Tensor::int32({0, 0, 0, 0});
  refused({"learnable_sink: expected dtype float32, float16 or bfloat16, found int32"},
          [&](auto& t) { t.learnable_sink = integers; });
}

TEST(CheckTensors, Ranks) {
  refused({"q: expected 4 dimensions (batch, seqlen_q, num_heads, head_dim) as cu_seqlens_q is not "
           "given, found (2, 3, 4)"},
          [](auto& t) { t.q.rank = 3; });
  refused(kPacked,
          {"k: expected 3 dimensions (total_k, num_heads_k, head_dim) as cu_seqlens_k is given, "
           "found (7, 2, 8, 0)"},
          [](auto& t) { t.k.rank = 4; });
  refused({"lse: expected 3 dimensions (batch, num_heads, seqlen_q)", "found (2, 4)"},
          [](auto& t) { t.lse->rank = 2; });
  refused(kPacked, {"lse: expected 2 dimensions (num_heads, total_q) as cu_seqlens_q is given"},
          [](auto& t) { t.lse->rank = 1; });
  refused(kPacked, {"cu_seqlens_k: expected 1 dimension (batch + 1), found (4, 0)"},
          [](auto& t) { t.cu_seqlens_k->rank = 2; });
  refused({"v: expected 4 dimensions", "found rank 99"}, [](auto& t) { t.v.rank = 99; });
  refused({"v: expected 4 dimensions", "found rank -1"}, [](auto& t) { t.v.rank = -1; });
}

TEST(CheckTensors, ShapesAgree) {
  refused({"k: expected shape[0] = batch = 2, as q.shape[0] is 2, found 1"},
          [](auto& t) { t.k.shape[0] = 1; });
  refused({"k: expected shape[3] = head_dim = 8, as q.shape[3] is 8, found 7"},
          [](auto& t) { t.k.shape[3] = 7; });
  refused({"v: expected shape[1] = seqlen_k = 5, as k.shape[1] is 5, found 6"},
          [](auto& t) { t.v.shape[1] = 6; });
  refused({"v: expected shape[1] = seqlen_k = 5, as k.shape[1] is 5, found 4"},
          [](auto& t) { t.v.shape[1] = 4; });
  refused({"v: expected shape[2] = num_heads_k = 2, as k.shape[2] is 2, found 1"},
          [](auto& t) { t.v.shape[2] = 1; });
  refused({"out: expected shape[1] = seqlen_q = 3, as q.shape[1] is 3, found 2"},
          [](auto& t) { t.out.shape[1] = 2; });
  refused({"out: expected shape[2] = num_heads = 4, as q.shape[2] is 4, found 3"},
          [](auto& t) { t.out.shape[2] = 3; });
  refused({"out: expected shape[3] = head_dim_v = 6, as v.shape[3] is 6, found 5"},
          [](auto& t) { t.out.shape[3] = 5; });
  refused({"lse: expected shape[1] = num_heads = 4, as q.shape[2] is 4, found 3"},
          [](auto& t) { t.lse->shape[1] = 3; });
  refused(kPacked, {"v: expected shape[0] = total_k = 7, as k.shape[0] is 7, found 6"},
          [](auto& t) { t.v.shape[0] = 6; });
  refused(kPacked, {"lse: expected shape[1] = total_q = 5, as q.shape[0] is 5, found 4"},
          [](auto& t) { t.lse->shape[1] = 4; });
  const Tensor three(DType::kFloat32, {3});
  refused({"learnable_sink: expected shape[0] = num_heads = 4, as q.shape[2] is 4, found 3"},
          [&](auto& t) { t.learnable_sink = three; });
}

TEST(CheckTensors, CountsOfLengthsAgree) {
  refused(kPacked,
          {"cu_seqlens_k: expected shape[0] = batch + 1 = 4, as cu_seqlens_q.shape[0] is 4, "
           "found 3"},
          [](auto& t) { t.cu_seqlens_k->shape[0] = 3; });
  refused({.packed_q = {1, 1}},
          {"cu_seqlens_q: expected shape[0] = batch + 1 = 3, as k.shape[0] is 2, found 2"},
          [](auto& t) { t.cu_seqlens_q->shape[0] = 2; });
  refused(kPacked, {"cu_seqlens_q: expected at least 1 entry, found none"},
          [](auto& t) { t.cu_seqlens_q->shape[0] = 0; });
  const Tensor used = Tensor::int32({1, 1});
  refused(kPacked,
          {"seqused_q: expected shape[0] = batch = 3, as cu_seqlens_q.shape[0] is 4, found 2"},
          [&](auto& t) { t.seqused_q = used; });
}

TEST(CheckTensors, HeadsDivide) {
  refused({.num_heads = 3, .num_heads_k = 2},
          {"q: expected num_heads to be a multiple of k's num_heads_k = 2, found 3"},
          [](const auto&) {});
  refused({.num_heads = 2, .num_heads_k = 4}, {"num_heads_k = 4, found 2"}, [](const auto&) {});
  refused({.num_heads = 2, .num_heads_k = 0}, {"num_heads_k = 0, found 2"}, [](const auto&) {});
}

TEST(CheckTensors, HeadDimsArePositive) {
  refused({.head_dim = 0}, {"q: expected head_dim of at least 1, found 0"}, [](const auto&) {});
  refused({.head_dim_v = 0}, {"v: expected head_dim_v of at least 1, found 0"}, [](const auto&) {});
}

TEST(CheckTensors, ExtentsFitTheMachine) {
  refused({"q: expected shape[1] from 0 to 2^48, found -1"}, [](auto& t) { t.q.shape[1] = -1; });
  refused({"k: expected shape[1] from 0 to 2^48, found 281474976710657"},
          [](auto& t) { t.k.shape[1] = (std::int64_t{1} << 48) + 1; });
  // Without strides these take no memory at all, but they cannot be counted.
  refused({"k: expected fewer than 2^63 bytes", "281474976710656", "strides (0, 0, 0, 0)"},
          [](auto& t) {
            t.k.shape = {2, std::int64_t{1} << 48, std::int64_t{1} << 20, 8};
            t.k.strides = {};
          });
  refused({"v: expected fewer than 2^63 bytes"}, [](auto& t) { t.v.strides[1] = INT64_MAX / 4; });
  refused({"v: expected fewer than 2^63 bytes"}, [](auto& t) { t.v.strides[0] = INT64_MIN; });
}

TEST(CheckTensors, EmptyTensorsMayHaveHugeExtents) {
  Call call({.batch = 0});
  const std::int64_t huge = std::int64_t{1} << 40;
  for (TensorView* view : {&call.tensors.k, &call.tensors.v}) view->shape[1] = huge;
  for (TensorView* view : {&call.tensors.q, &call.tensors.out}) view->shape[1] = huge;
  call.tensors.lse->shape[2] = huge;
  EXPECT_NO_THROW(call.run());
}

TEST(CheckTensors, AddressesAreThereAndAligned) {
  refused({"k: expected data for its 160 elements, found a null pointer"},
          [](auto& t) { t.k.data = nullptr; });
  refused({"lse: expected data for its 24 elements"}, [](auto& t) { t.lse->data = nullptr; });
  refused({.dtype = DType::kFloat16}, {"v: expected an address", "float16", "multiple of 2"},
          [](auto& t) { t.v.data = static_cast<std::byte*>(t.v.data) + 1; });
  refused(kPacked, {"cu_seqlens_q: expected an address", "int32", "multiple of 4"}, [](auto& t) {
    t.cu_seqlens_q->data = static_cast<std::byte*>(t.cu_seqlens_q->data) + 2;
  });
}

TEST(CheckTensors, LengthsAreContiguous) {
  refused(kPacked, {"cu_seqlens_k: expected a contiguous tensor, found stride 2"},
          [](auto& t) { t.cu_seqlens_k->strides[0] = 2; });
  const Tensor used(DType::kInt32, {2}, {-1});
  refused({"seqused_q: expected a contiguous tensor, found stride -1"},
          [&](auto& t) { t.seqused_q = used; });
}

TEST(CheckTensors, StrideOfASingleLengthDoesNotMatter) {
  Call call({.batch = 1});
  Tensor used(DType::kInt32, {1}, {9});
  used.set(0, 2);
  call.tensors.seqused_q = used;
  EXPECT_NO_THROW(call.run());
}

}  // namespace
}  // namespace parapet
