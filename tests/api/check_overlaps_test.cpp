// out and lse need memory of their own.

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "support/call.h"
#include "support/errors.h"

namespace parapet {
namespace {

using testing::Call;
using testing::CallShape;
using testing::expect_refused;
using testing::Extents;
using testing::Tensor;

// q, k, v and out of one shape, so that any can stand for any.
const CallShape kSquare = {
    .seqlen_q = 3, .seqlen_k = 3, .num_heads = 2, .num_heads_k = 2, .head_dim = 8, .head_dim_v = 8};

TEST(CheckOverlaps, OutIsNoInput) {
  for (const char* name : {"q", "k", "v"}) {
    Call call(kSquare);
    call.tensors.out = name[0] == 'q' ? call.q : name[0] == 'k' ? call.k : call.v;
    expect_refused({"out: expected memory of its own", std::string("also ") + name + "'s"},
                   [&] { call.run(); });
  }
}

TEST(CheckOverlaps, LseIsNoOtherTensor) {
  Call call({.seqlen_q = 3, .num_heads = 4, .head_dim = 8});
  call.tensors.lse->data = call.q.view().data;
  expect_refused({"lse: expected memory of its own", "q's"}, [&] { call.run(); });
  call.tensors.lse->data = call.out.view().data;
  expect_refused({"out: expected memory of its own", "lse's"}, [&] { call.run(); });
}

TEST(CheckOverlaps, LengthsAndSinksAreNotOverwritten) {
  Call call({.packed_q = {1, 2}, .packed_k = {2, 2}});
  call.tensors.cu_seqlens_q = TensorView::contiguous(call.lse.view().data, DType::kInt32, {3});
  expect_refused({"lse: expected memory of its own", "cu_seqlens_q's"}, [&] { call.run(); });

  Call sunk;
  sunk.tensors.learnable_sink = TensorView::contiguous(sunk.out.view().data, DType::kFloat32, {4});
  expect_refused({"out: expected memory of its own", "learnable_sink's"}, [&] { sunk.run(); });
}

TEST(CheckOverlaps, EachElementHasAPlace) {
  Call call;
  call.tensors.out.strides[0] = 0;
  expect_refused({"out: expected a place of its own for each element", "strides (0, "},
                 [&] { call.run(); });
  Call shared;
  shared.tensors.lse->strides = {12, 2, 1};
  expect_refused({"lse: expected a place of its own for each element", "(12, 2, 1)"},
                 [&] { shared.run(); });
}

TEST(CheckOverlaps, InputsMayShareMemory) {
  Call call(kSquare);
  call.tensors.k = call.q;
  call.tensors.v = call.q;
  EXPECT_NO_THROW(call.run());
}

// q, k, v, out as the heads, the tokens, the last dims and the batch entries of one buffer.
TEST(CheckOverlaps, InterleavedViewsAreApart) {
  constexpr std::int64_t kBatch = 2, kRows = 3, kHeads = 2, kDim = 8;
  const Extents shape = {kBatch, kRows, kHeads, kDim};
  struct Arrangement {
    Extents strides;
    std::int64_t step;  // from q to k to v to out
  };
  const std::vector<Arrangement> arrangements = {
      {{kRows * 4 * kHeads * kDim, 4 * kHeads * kDim, kDim, 1}, kHeads * kDim},
      {{4 * kRows * kHeads * kDim, kHeads * kDim, kDim, 1}, kRows * kHeads * kDim},
      {{kRows * kHeads * kDim * 4, kHeads * kDim * 4, kDim * 4, 1}, kDim},
      {{kRows * kHeads * kDim * 4, kHeads * kDim * 4, kDim * 4, 4}, 1},
      {{kRows * kHeads * kDim, kHeads * kDim, kDim, 1}, kBatch * kRows * kHeads * kDim},
  };
  for (const Arrangement& arrangement : arrangements) {
    Tensor buffer = Tensor::random(DType::kFloat32, {4 * kBatch * kRows * kHeads * kDim}, 1);
    const auto part = [&](std::int64_t index) {
      TensorView view =
          TensorView::contiguous(static_cast<float*>(buffer.view().data) + index * arrangement.step,
                                 DType::kFloat32, shape);
      std::ranges::copy(arrangement.strides, view.strides.begin());
      return view;
    };
    ForwardTensors tensors;
    tensors.q = part(0), tensors.k = part(1), tensors.v = part(2), tensors.out = part(3);
    EXPECT_NO_THROW(forward(tensors));
    tensors.out = part(2);
    expect_refused({"out: expected memory of its own", "v's"}, [&] { forward(tensors); });
  }
}

TEST(CheckOverlaps, EmptyTensorsOverlapNothing) {
  Call call({.seqlen_q = 0});
  call.tensors.out.data = call.k.view().data;
  EXPECT_NO_THROW(call.run());
}

}  // namespace
}  // namespace parapet
