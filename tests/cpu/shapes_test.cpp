// Head dims, head counts, lengths around the sizes of panels and tiles, and strides of any kind.

#include <algorithm>

#include "cpu/on_target.h"
#include "support/call.h"
#include "support/check.h"

namespace parapet {
namespace {

using testing::Call;
using testing::CallShape;
using testing::expect_right;
using testing::Extents;
using testing::Tensor;

constexpr DType kFloats[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16};

class Shapes : public testing::OnTarget {};
PARAPET_ON_EVERY_TARGET(Shapes);

TEST_P(Shapes, HeadDims) {
  for (const DType dtype : kFloats) {
    for (const std::int64_t head_dim : {1, 3, 8, 20, 64, 72, 129}) {
      for (const std::int64_t head_dim_v : {1, 7, 16, 64, 100}) {
        for (const std::int64_t seqlen_q : {1, 19}) {
          SCOPED_TRACE(::testing::Message() << name_of(dtype) << ", D " << head_dim << ", Dv "
                                            << head_dim_v << ", Sq " << seqlen_q);
          const Call call({.dtype = dtype,
                           .batch = 1,
                           .seqlen_q = seqlen_q,
                           .seqlen_k = 37,
                           .num_heads = 2,
                           .num_heads_k = 1,
                           .head_dim = head_dim,
                           .head_dim_v = head_dim_v});
          expect_right(call.tensors);
        }
      }
    }
  }
}

TEST_P(Shapes, RowsAroundPanels) {
  for (std::int64_t seqlen_q = 1; seqlen_q <= 100; ++seqlen_q) {
    SCOPED_TRACE(seqlen_q);
    const Call call({.batch = 1,
                     .seqlen_q = seqlen_q,
                     .seqlen_k = 21,
                     .num_heads = 1,
                     .num_heads_k = 1,
                     .head_dim = 4,
                     .head_dim_v = 4});
    expect_right(call.tensors);
  }
}

TEST_P(Shapes, KeysAroundTiles) {
  for (const std::int64_t seqlen_q : {1, 30}) {
    for (const std::int64_t base : {0, 128, 512, 1024}) {
      for (const std::int64_t extra : {-9, -1, 0, 1, 5, 17}) {
        if (base + extra < 0) continue;
        SCOPED_TRACE(::testing::Message() << "Sq " << seqlen_q << ", Sk " << base + extra);
        const Call call({.batch = 1,
                         .seqlen_q = seqlen_q,
                         .seqlen_k = base + extra,
                         .num_heads = 1,
                         .num_heads_k = 1,
                         .head_dim = 4,
                         .head_dim_v = 4});
        expect_right(call.tensors);
      }
    }
  }
}

// One to nine rows a key head: both paths and their border.
TEST_P(Shapes, GroupsOfHeads) {
  for (const std::int64_t num_heads_k : {1, 2, 5}) {
    for (std::int64_t group = 1; group <= 10; ++group) {
      for (const std::int64_t seqlen_q : {1, 2}) {
        SCOPED_TRACE(::testing::Message()
                     << "Hk " << num_heads_k << ", group " << group << ", Sq " << seqlen_q);
        const Call call({.seqlen_q = seqlen_q,
                         .seqlen_k = 40,
                         .num_heads = group * num_heads_k,
                         .num_heads_k = num_heads_k});
        expect_right(call.tensors, {.causal = true});
      }
    }
  }
}

TEST_P(Shapes, ManyKeyHeadsOfFewRows) {
  const Call call({.batch = 1, .seqlen_q = 1, .seqlen_k = 600, .num_heads = 70, .num_heads_k = 70});
  expect_right(call.tensors);
}

// Copies of the call's tensors in layouts of all kinds; the allocation is exact.
Tensor laid_out(const Tensor& tensor, const Extents& strides) {
  const TensorView& view = tensor;
  Tensor copy(view.dtype, {view.shape.begin(), view.shape.begin() + view.rank}, strides);
  for (std::int64_t i = 0; i < tensor.size(); ++i) copy.set(i, tensor.get(i));
  return copy;
}

TEST_P(Shapes, Strides) {
  constexpr std::int64_t kBatch = 2, kLength = 21, kHeads = 3;
  for (const DType dtype : kFloats) {
    for (const std::int64_t seqlen_q : {std::int64_t{1}, kLength}) {
      Call call({.dtype = dtype,
                 .batch = kBatch,
                 .seqlen_q = seqlen_q,
                 .seqlen_k = kLength,
                 .num_heads = kHeads,
                 .num_heads_k = kHeads,
                 .head_dim = 16,
                 .head_dim_v = 16});
      const std::vector<Extents> layouts = {
          {kHeads * kLength * 16, 16, kLength * 16, 1},            // heads before rows
          {17, kBatch * 17, kLength * kBatch * 17, 1},             // unaligned, batch innermost
          {kLength * kHeads * 16, -kHeads * 16, 16, 1},            // rows backwards
          {-kLength * kHeads * 19, kHeads * 19, -19, 1},           // batch and heads backwards
          {kLength * kHeads * 16 * 3, kHeads * 16 * 3, 16 * 3, 1}  // gaps
      };
      for (const Extents& q_strides : layouts) {
        for (const Extents& k_strides : layouts) {
          const Tensor q = laid_out(call.q, q_strides), k = laid_out(call.k, k_strides);
          const Tensor v = laid_out(call.v, k_strides), out = laid_out(call.out, q_strides);
          call.tensors.q = q, call.tensors.k = k, call.tensors.v = v, call.tensors.out = out;
          expect_right(call.tensors, {.causal = true});
        }
      }
    }
  }
}

// A stride of 0 repeats: one row of keys and values for all keys, one head for all heads.
TEST_P(Shapes, StridesOfZero) {
  Call call({.seqlen_q = 12, .seqlen_k = 30, .num_heads = 4, .num_heads_k = 4});
  for (const int dim : {0, 1, 2}) {
    call.tensors.k.strides[dim] = 0;
    call.tensors.v.strides[dim] = 0;
    expect_right(call.tensors);
  }
}

TEST_P(Shapes, LseWithStrides) {
  Call call({.batch = 2, .seqlen_q = 33, .seqlen_k = 15, .num_heads = 2, .num_heads_k = 1});
  const Tensor lse(DType::kFloat32, {2, 2, 33}, {1, -70, -2});
  call.tensors.lse = lse;
  expect_right(call.tensors);
}

}  // namespace
}  // namespace parapet
