// forward() as a whole: what it adds to the backend (layouts, copies, empty calls), and that
// options and metadata reach it. The backends' own tests go through their cases.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "parapet/parapet.h"
#include "support/call.h"
#include "support/check.h"
#include "support/errors.h"
#include "support/tensor.h"

namespace parapet {
namespace {

using testing::Call;
using testing::CallShape;
using testing::expect_error;
using testing::expect_right;
using testing::Extents;
using testing::Tensor;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr DType kFloats[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16};

TEST(Forward, EveryLayoutInEveryDtype) {
  const std::vector<std::int32_t> lengths_q = {2, 0, 3}, lengths_k = {4, 1, 0};
  for (const DType dtype : kFloats) {
    for (const bool packed_q : {false, true}) {
      for (const bool packed_k : {false, true}) {
        CallShape shape = {.dtype = dtype, .batch = 3};
        if (packed_q) shape.packed_q = lengths_q;
        if (packed_k) shape.packed_k = lengths_k;
        const Call call(shape);
        expect_right(call.tensors);
      }
    }
  }
}

TEST(Forward, EveryOptionReachesTheBackend) {
  Call call({.seqlen_q = 9, .seqlen_k = 11});
  const Tensor sink = Tensor::random(DType::kFloat16, {4}, 7);
  const Tensor used_q = Tensor::int32({9, 4}), used_k = Tensor::int32({0, 10});
  const auto expect_change = [&](const ForwardTensors& tensors, const ForwardOptions& options) {
    forward(call.tensors);
    const std::vector<std::byte> plain(call.out.bytes().begin(), call.out.bytes().end());
    expect_right(tensors, options);
    EXPECT_FALSE(std::ranges::equal(plain, call.out.bytes()));
  };
  const auto with_options = [&](const auto& change) {
    ForwardOptions options;
    change(options);
    expect_change(call.tensors, options);
  };
  with_options([](auto& o) { o.softmax_scale = 2; });
  with_options([](auto& o) { o.softmax_scale = -1; });
  with_options([](auto& o) { o.softcap = 0.5f; });
  with_options([](auto& o) { o.causal = true; });
  with_options([](auto& o) { o.window_left = 2; });
  with_options([](auto& o) { o.window_right = 1; });
  const auto with_tensors = [&](const auto& change) {
    ForwardTensors tensors = call.tensors;
    change(tensors);
    expect_change(tensors, {});
  };
  with_tensors([&](auto& t) { t.learnable_sink = sink; });
  with_tensors([&](auto& t) { t.seqused_q = used_q; });
  with_tensors([&](auto& t) { t.seqused_k = used_k; });
}

TEST(Forward, LseIsOptional) {
  Call call;
  call.run();
  const std::vector<std::byte> expected(call.out.bytes().begin(), call.out.bytes().end());
  call.out.fill(9);
  call.tensors.lse.reset();
  call.run();
  EXPECT_TRUE(std::ranges::equal(expected, call.out.bytes()));
}

TEST(Forward, RowsThatNoSegmentCoversAreZero) {
  Call call({.packed_q = {2, 3, 4}, .packed_k = {4, 1, 3}});
  const Tensor cu_seqlens = Tensor::int32({0, 2, 2, 5});
  call.tensors.cu_seqlens_q = cu_seqlens;
  expect_right(call.tensors);
  for (std::int64_t row = 5; row < 9; ++row) {
    for (std::int64_t i = 0; i < 4 * 6; ++i) EXPECT_EQ(call.out.get(row * 4 * 6 + i), 0);
    for (std::int64_t head = 0; head < 4; ++head)
      EXPECT_EQ(call.lse.get(head * 9 + row), -kInfinity);
  }
}

TEST(Forward, UncheckedLengthsAreClamped) {
  Call call({.packed_q = {2, 3, 4}, .packed_k = {4, 1, 3}});
  call.options.check_metadata = false;
  const Tensor q = Tensor::int32({-5, 4, 2, 99}), k = Tensor::int32({INT32_MIN, 4, INT32_MAX, 2});
  const Tensor used = Tensor::int32({99, -1, 2});
  call.tensors.cu_seqlens_q = q, call.tensors.cu_seqlens_k = k, call.tensors.seqused_q = used;
  expect_right(call.tensors, call.options);
}

// Strides of zero, negative ones, gaps, any order of dimensions.
TEST(Forward, AnyStrides) {
  const Extents shape = {2, 3, 4, 8};
  const std::vector<Extents> inputs = {{4, 8, 24, 192}, {0, 0, 0, 1},      {-96, -32, -8, 1},
                                       {0, 32, 0, 0},   {500, 100, 20, 2}, {1, 2, 6, 24}};
  const std::vector<Extents> outputs = {
      {96, 32, 8, 1}, {-96, -32, -8, -1}, {500, 100, 20, 2}, {1, 2, 6, 24}};
  for (const DType dtype : kFloats) {
    const Call plain({.dtype = dtype, .seqlen_k = 3, .num_heads_k = 4, .head_dim_v = 8});
    for (const Extents& input : inputs) {
      for (const Extents& output : outputs) {
        const auto strided = [&](const Tensor& values) {
          Tensor tensor(dtype, shape, input);
          for (std::int64_t i = 0; i < tensor.size(); ++i) tensor.set(i, values.get(i));
          return tensor;
        };
        const auto copied = [&](const Tensor& values) {
          Tensor tensor(dtype, shape);
          for (std::int64_t i = 0; i < tensor.size(); ++i) tensor.set(i, values.get(i));
          return tensor;
        };
        const Tensor q = strided(plain.q), k = strided(plain.k), v = strided(plain.v);
        const Tensor q_copy = copied(q), k_copy = copied(k), v_copy = copied(v);
        const Tensor out(dtype, shape, output), lse(DType::kFloat32, {2, 4, 3}, {-1, 6, 2});

        ForwardTensors tensors = plain.tensors;
        tensors.q = q_copy, tensors.k = k_copy, tensors.v = v_copy;
        expect_right(tensors);
        tensors.q = q, tensors.k = k, tensors.v = v, tensors.out = out, tensors.lse = lse;
        forward(tensors);
        for (std::int64_t i = 0; i < out.size(); ++i) ASSERT_EQ(out.get(i), plain.out.get(i));
        for (std::int64_t i = 0; i < lse.size(); ++i) ASSERT_EQ(lse.get(i), plain.lse.get(i));
      }
    }
  }
}

// Gaps between the elements of a strided result keep what they had.
TEST(Forward, NothingBetweenElementsIsWritten) {
  Call call({.num_heads = 2});
  const Tensor out(DType::kFloat32, {2, 3, 2, 6}, {80, 26, 13, 2});
  call.tensors.out = out;
  const std::vector<std::byte> before(out.bytes().begin(), out.bytes().end());
  call.run();
  std::vector<bool> written(before.size() / 4, false);
  for (int b = 0; b < 2; ++b) {
    for (int i = 0; i < 3; ++i) {
      for (int h = 0; h < 2; ++h) {
        for (int d = 0; d < 6; ++d) written[80 * b + 26 * i + 13 * h + 2 * d] = true;
      }
    }
  }
  for (std::size_t byte = 0; byte < before.size(); ++byte) {
    if (written[byte / 4]) continue;
    EXPECT_EQ(out.bytes()[byte], before[byte]) << byte;
  }
}

TEST(Forward, WithoutQueriesThereIsNothingToDo) {
  for (const CallShape& shape :
       {CallShape{.batch = 0}, CallShape{.seqlen_q = 0}, CallShape{.num_heads = 0},
        CallShape{.num_heads = 0, .num_heads_k = 0}, CallShape{.packed_q = {0, 0}}}) {
    const Call call(shape);
    EXPECT_NO_THROW(call.run());
    EXPECT_EQ(call.out.size(), 0);
    EXPECT_EQ(call.lse.size(), 0);
  }
}

TEST(Forward, EmptyPackedBatch) {
  Call call({.packed_q = {3}, .packed_k = {4}});
  const Tensor none = Tensor::int32({0});
  call.tensors.cu_seqlens_q = none, call.tensors.cu_seqlens_k = none;
  call.run();
  for (std::int64_t i = 0; i < call.out.size(); ++i) EXPECT_EQ(call.out.get(i), 0);
  for (std::int64_t i = 0; i < call.lse.size(); ++i) EXPECT_EQ(call.lse.get(i), -kInfinity);
}

TEST(Forward, WithoutKeysOutputIsZero) {
  for (const CallShape& shape : {CallShape{.seqlen_k = 0}, CallShape{.packed_k = {0, 0}}}) {
    for (const bool null : {false, true}) {
      Call call(shape);
      if (null) call.tensors.k.data = call.tensors.v.data = nullptr;
      call.run();
      for (std::int64_t i = 0; i < call.out.size(); ++i) EXPECT_EQ(call.out.get(i), 0);
      for (std::int64_t i = 0; i < call.lse.size(); ++i) EXPECT_EQ(call.lse.get(i), -kInfinity);
    }
  }
}

TEST(Forward, WrongCallsAreRefusedEvenWithoutWork) {
  Call call({.batch = 0});
  call.options.softcap = -1;
  testing::expect_refused({"softcap"}, [&] { call.run(); });
}

TEST(Forward, AWrongCallWritesNothing) {
  Call call({.packed_q = {2, 3}, .packed_k = {4, 1}});
  const Tensor cu_seqlens = Tensor::int32({0, 4, 6});
  call.tensors.cu_seqlens_k = cu_seqlens;
  testing::expect_refused({"cu_seqlens_k[2]"}, [&] { call.run(); });
  for (std::int64_t i = 0; i < call.out.size(); ++i) EXPECT_TRUE(std::isnan(call.out.get(i)));
}

#if defined(__has_feature)
#define PARAPET_HAS_FEATURE(feature) __has_feature(feature)
#else
#define PARAPET_HAS_FEATURE(feature) false
#endif

TEST(Forward, OutOfMemoryIsAnError) {
#if defined(__SANITIZE_ADDRESS__) || PARAPET_HAS_FEATURE(address_sanitizer)
  GTEST_SKIP() << "the address sanitizer ends the program where memory runs out";
#endif
  Call call;
  // One element seen 2^57 times: a copy of it does not fit any machine.
  call.tensors.k.strides = call.tensors.v.strides = {};
  call.tensors.k.shape[1] = call.tensors.v.shape[1] = std::int64_t{1} << 48;
  call.tensors.k.shape[3] = call.tensors.q.shape[3] = 1 << 8;
  call.tensors.q.strides = {};
  expect_error(ErrorCode::kRuntime, {"memory"}, [&] { call.run(); });
}

}  // namespace
}  // namespace parapet
