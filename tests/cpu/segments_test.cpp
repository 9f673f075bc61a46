// How rows and keys fall into segments: packed, used lengths, empty ones, gaps, malformed lengths.

#include <cmath>
#include <limits>
#include <random>

#include "cpu/on_target.h"
#include "support/call.h"
#include "support/check.h"

namespace parapet {
namespace {

using testing::Call;
using testing::expect_right;
using testing::Tensor;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

class Segments : public testing::OnTarget {};
PARAPET_ON_EVERY_TARGET(Segments);

TEST_P(Segments, Ragged) {
  const Call call(
      {.packed_q = {1, 300, 7, 0, 64, 2, 40}, .packed_k = {700, 300, 0, 5, 64, 130, 1}});
  expect_right(call.tensors);
  expect_right(call.tensors, {.causal = true});
  expect_right(call.tensors, {.window_left = 20, .window_right = 30, .num_splits = 2});
}

TEST_P(Segments, PackedQueriesDenseKeys) {
  const Call packed_q({.batch = 3, .seqlen_k = 50, .packed_q = {9, 0, 60}});
  expect_right(packed_q.tensors, {.causal = true});
  const Call packed_k({.batch = 3, .seqlen_q = 20, .packed_k = {9, 0, 60}});
  expect_right(packed_k.tensors, {.causal = true});
}

TEST_P(Segments, UsedLengths) {
  Call call({.batch = 4, .seqlen_q = 30, .seqlen_k = 90, .num_heads = 4});
  const Tensor used_q = Tensor::int32({30, 0, 1, 17}), used_k = Tensor::int32({90, 40, 0, 3});
  call.tensors.seqused_q = used_q;
  call.tensors.seqused_k = used_k;
  expect_right(call.tensors, {.causal = true});
  expect_right(call.tensors, {.window_left = 3});
}

// What lies beyond the used length is never read to any effect.
TEST_P(Segments, GarbageBeyondUsedKeys) {
  for (const std::int64_t seqlen_q : {1, 20}) {
    Call call({.batch = 2, .seqlen_q = seqlen_q, .seqlen_k = 30, .num_heads = 1, .num_heads_k = 1});
    for (std::int64_t key = 12; key < 30; ++key) {
      for (std::int64_t d = 0; d < 8; ++d) call.k.set(key * 8 + d, d % 2 ? kInfinity : NAN);
      for (std::int64_t d = 0; d < 6; ++d) call.v.set(key * 6 + d, d % 2 ? NAN : -kInfinity);
    }
    const Tensor used_k = Tensor::int32({12, 30});
    call.tensors.seqused_k = used_k;
    expect_right(call.tensors);
    for (std::int64_t i = 0; i < call.out.size(); ++i) EXPECT_TRUE(std::isfinite(call.out.get(i)));
  }
}

// A packed tensor may be longer than its last segment, and used lengths leave gaps.
TEST_P(Segments, RowsThatNoSegmentCovers) {
  Call call({.packed_q = {40, 10, 20}, .packed_k = {30, 30, 10}});
  const Tensor cu_seqlens_q = Tensor::int32({0, 40, 50, 60});
  const Tensor used_q = Tensor::int32({5, 10, 0});
  call.tensors.cu_seqlens_q = cu_seqlens_q;
  expect_right(call.tensors);
  call.tensors.seqused_q = used_q;
  expect_right(call.tensors);
}

TEST_P(Segments, NothingToDo) {
  expect_right(Call({.batch = 0}).tensors);
  expect_right(Call({.seqlen_q = 0}).tensors);
  expect_right(Call({.seqlen_k = 0}).tensors);
  expect_right(Call({.seqlen_q = 40, .seqlen_k = 0}).tensors);
  expect_right(Call({.packed_q = {0, 0}, .packed_k = {3, 4}}).tensors);
  expect_right(Call({.packed_q = {3, 40}, .packed_k = {0, 0}}).tensors);
  Call no_segment({.packed_q = {5}, .packed_k = {5}});
  const Tensor zero = Tensor::int32({0});
  no_segment.tensors.cu_seqlens_q = zero;
  no_segment.tensors.cu_seqlens_k = zero;
  expect_right(no_segment.tensors);
}

// One query at most in each segment, and one segment without any.
TEST_P(Segments, AnEmptySegmentAmongDecodes) {
  const Call call({.dtype = DType::kBFloat16,
                   .num_heads = 9,
                   .num_heads_k = 3,
                   .head_dim = 64,
                   .head_dim_v = 64,
                   .packed_q = {1, 0, 1},
                   .packed_k = {3, 0, 5}});
  expect_right(call.tensors, {.softmax_scale = 1.0f, .causal = true});
}

TEST_P(Segments, PrefillAndDecodeInOneCall) {
  const Call call({.num_heads = 8,
                   .num_heads_k = 2,
                   .head_dim = 16,
                   .head_dim_v = 16,
                   .packed_q = {1, 500, 1, 3, 1, 90},
                   .packed_k = {1500, 500, 600, 40, 1, 2500}});
  expect_right(call.tensors, {.causal = true, .num_threads = 3});
}

// Without checks, lengths are clamped whatever they say; the allocations are exact, so that the
// address sanitizer sees any access outside.
TEST_P(Segments, MalformedLengths) {
  std::mt19937 engine(5);
  const std::int32_t extremes[] = {
      std::numeric_limits<std::int32_t>::min(), -1, 0, 1, 13, 25, 26, 40,
      std::numeric_limits<std::int32_t>::max()};
  for (int round = 0; round < 200; ++round) {
    Call call({.num_heads = 2, .num_heads_k = 1, .packed_q = {10, 10, 5}, .packed_k = {9, 9, 8}});
    std::vector<std::int32_t> values[4];
    for (int array = 0; array < 4; ++array) {
      for (int i = 0; i < (array < 2 ? 4 : 3); ++i) {
        values[array].push_back(engine() % 2 ? extremes[engine() % std::size(extremes)]
                                             : static_cast<std::int32_t>(engine() % 30));
      }
    }
    const Tensor cu_q = Tensor::int32(values[0]), cu_k = Tensor::int32(values[1]);
    const Tensor used_q = Tensor::int32(values[2]), used_k = Tensor::int32(values[3]);
    call.tensors.cu_seqlens_q = cu_q;
    call.tensors.cu_seqlens_k = cu_k;
    if (engine() % 2) call.tensors.seqused_q = used_q;
    if (engine() % 2) call.tensors.seqused_k = used_k;
    SCOPED_TRACE(::testing::PrintToString(values));
    expect_right(call.tensors, {.causal = engine() % 2 == 0, .check_metadata = false});
  }
}

}  // namespace
}  // namespace parapet
