// The same bits, however the work is divided: threads, runs, and what else is in the batch. And
// results that follow from others: permuted segments, repeated heads, split keys, padding.

#include <algorithm>
#include <vector>

#include "api/problem.h"
#include "cpu/on_target.h"
#include "support/call.h"
#include "support/check.h"
#include "tools/check/check.h"

namespace parapet {
namespace {

using testing::Call;
using testing::CallShape;
using testing::expect_right;
using testing::Tensor;

class Invariance : public testing::OnTarget {
 protected:
  struct Bits {
    friend bool operator==(const Bits&, const Bits&) = default;
    std::vector<std::byte> out, lse;
  };
  static Bits run(const Call& call, const ForwardOptions& options) {
    forward(call.tensors, options);
    return {{call.out.bytes().begin(), call.out.bytes().end()},
            {call.lse.bytes().begin(), call.lse.bytes().end()}};
  }

  // Enough work for several threads, in each way of sharing it.
  static std::vector<CallShape> shapes() {
    return {{.batch = 1,
             .seqlen_q = 900,
             .seqlen_k = 2100,
             .num_heads = 1,
             .num_heads_k = 1,
             .head_dim = 40,
             .head_dim_v = 24},
            {.batch = 1,
             .seqlen_q = 70,
             .seqlen_k = 9000,
             .num_heads = 2,
             .num_heads_k = 1,
             .head_dim = 16,
             .head_dim_v = 16},
            {.batch = 3,
             .seqlen_q = 1,
             .seqlen_k = 7000,
             .num_heads = 12,
             .num_heads_k = 3,
             .head_dim = 32,
             .head_dim_v = 32},
            {.num_heads = 6,
             .num_heads_k = 2,
             .head_dim = 32,
             .head_dim_v = 32,
             .packed_q = {1, 400, 20, 8, 130, 1},
             .packed_k = {3000, 400, 2500, 900, 1, 700}}};
  }
};
PARAPET_ON_EVERY_TARGET(Invariance);

TEST_P(Invariance, Threads) {
  for (const CallShape& shape : shapes()) {
    const Call call(shape);
    for (const int num_splits : {1, 0, 3}) {
      ForwardOptions options = {.causal = true, .num_splits = num_splits, .num_threads = 1};
      const Bits expected = run(call, options);
      for (const int threads : {2, 3, 7}) {
        options.num_threads = threads;
        for (int repeat = 0; repeat < 2; ++repeat) {
          EXPECT_TRUE(run(call, options) == expected) << threads << " threads";
        }
      }
    }
  }
}

// A segment alone gives the same bits as among others, however large these are.
TEST_P(Invariance, TheRestOfTheBatch) {
  const std::vector<std::int32_t> lengths_q = {1, 700, 33, 6, 60},
                                  lengths_k = {5000, 900, 2600, 800, 4000};
  const Call together({.num_heads = 4,
                       .num_heads_k = 2,
                       .head_dim = 24,
                       .head_dim_v = 24,
                       .packed_q = lengths_q,
                       .packed_k = lengths_k});
  const ForwardOptions options = {.causal = true, .num_threads = 2};
  forward(together.tensors, options);
  std::int64_t q_begin = 0, k_begin = 0;
  for (std::size_t segment = 0; segment < lengths_q.size(); ++segment) {
    Call alone({.num_heads = 4,
                .num_heads_k = 2,
                .head_dim = 24,
                .head_dim_v = 24,
                .packed_q = {lengths_q[segment]},
                .packed_k = {lengths_k[segment]}});
    for (std::int64_t i = 0; i < alone.q.size(); ++i) {
      alone.q.set(i, together.q.get(q_begin * 4 * 24 + i));
    }
    for (std::int64_t i = 0; i < alone.k.size(); ++i) {
      alone.k.set(i, together.k.get(k_begin * 2 * 24 + i));
      alone.v.set(i, together.v.get(k_begin * 2 * 24 + i));
    }
    forward(alone.tensors, options);
    std::int64_t different = 0;
    for (std::int64_t i = 0; i < alone.out.size(); ++i) {
      different += alone.out.get(i) != together.out.get(q_begin * 4 * 24 + i);
    }
    EXPECT_EQ(different, 0) << "segment " << segment;
    q_begin += lengths_q[segment];
    k_begin += lengths_k[segment];
  }
}

TEST_P(Invariance, RepeatedKeyHeads) {
  for (const std::int64_t seqlen_q : {1, 33}) {
    constexpr std::int64_t kGroup = 3, kHeadsK = 2, kDim = 8, kKeys = 50;
    const Call grouped({.batch = 1,
                        .seqlen_q = seqlen_q,
                        .seqlen_k = kKeys,
                        .num_heads = kGroup * kHeadsK,
                        .num_heads_k = kHeadsK,
                        .head_dim = kDim,
                        .head_dim_v = kDim});
    Call repeated({.batch = 1,
                   .seqlen_q = seqlen_q,
                   .seqlen_k = kKeys,
                   .num_heads = kGroup * kHeadsK,
                   .num_heads_k = kGroup * kHeadsK,
                   .head_dim = kDim,
                   .head_dim_v = kDim});
    for (std::int64_t i = 0; i < repeated.k.size(); ++i) {
      const std::int64_t d = i % kDim, head = i / kDim % (kGroup * kHeadsK);
      const std::int64_t key = i / (kDim * kGroup * kHeadsK);
      const std::int64_t source = (key * kHeadsK + head / kGroup) * kDim + d;
      repeated.k.set(i, grouped.k.get(source));
      repeated.v.set(i, grouped.v.get(source));
    }
    forward(grouped.tensors, {.causal = true});
    forward(repeated.tensors, {.causal = true});
    for (std::int64_t i = 0; i < grouped.out.size(); ++i) {
      EXPECT_NEAR(grouped.out.get(i), repeated.out.get(i), 1e-6);
    }
  }
}

TEST_P(Invariance, SplitsOfAnyNumber) {
  for (const std::int64_t seqlen_q : {1, 50, 300}) {
    const Call call(
        {.batch = 2, .seqlen_q = seqlen_q, .seqlen_k = 1000, .num_heads = 2, .num_heads_k = 1});
    for (ForwardOptions options : {ForwardOptions{}, {.causal = true, .window_left = 40}}) {
      const api::Problem problem = api::make_problem(call.tensors, options);
      const tools::Reference reference(problem, tools::all_rows(problem));
      for (const int num_splits : {0, 2, 3, 8, 100, 256}) {
        options.num_splits = num_splits;
        forward(call.tensors, options);
        EXPECT_TRUE(reference.compare(problem).ok()) << num_splits;
      }
    }
  }
}

// Two segments decode with two splits: every row of both is written.
TEST_P(Invariance, SplitsWriteEverySegment) {
  const Call call({.dtype = DType::kBFloat16,
                   .num_heads = 4,
                   .num_heads_k = 4,
                   .head_dim = 64,
                   .head_dim_v = 64,
                   .packed_q = {1, 1},
                   .packed_k = {1000, 900}});
  expect_right(call.tensors, {.num_splits = 2});
}

// Rows for which some splits, or all, are empty.
TEST_P(Invariance, EmptySplits) {
  for (const std::int64_t seqlen_q : {5, 200}) {
    const Call call(
        {.batch = 1, .seqlen_q = seqlen_q, .seqlen_k = 150, .num_heads = 1, .num_heads_k = 1});
    expect_right(call.tensors, {.causal = true, .num_splits = 9});
    expect_right(call.tensors, {.window_left = 2, .window_right = 1, .num_splits = 9});
  }
  expect_right(Call({.batch = 1, .seqlen_q = 3, .seqlen_k = 0}).tensors, {.num_splits = 4});
}

TEST_P(Invariance, PermutedSegments) {
  const std::vector<std::int32_t> lengths = {20, 300, 1, 64};
  const Call call({.packed_q = lengths, .packed_k = lengths});
  Call reversed({.packed_q = {64, 1, 300, 20}, .packed_k = {64, 1, 300, 20}});
  std::int64_t begin = 0, end = 385;
  const auto copy = [&](const Tensor& from, Tensor& to, std::int64_t width, std::int32_t length) {
    for (std::int64_t i = 0; i < length * width; ++i) {
      to.set((end - length) * width + i, from.get(begin * width + i));
    }
  };
  for (const std::int32_t length : lengths) {
    copy(call.q, reversed.q, 4 * 8, length);
    copy(call.k, reversed.k, 2 * 8, length);
    copy(call.v, reversed.v, 2 * 6, length);
    begin += length, end -= length;
  }
  forward(call.tensors, {.causal = true});
  forward(reversed.tensors, {.causal = true});
  begin = 0, end = 385;
  for (const std::int32_t length : lengths) {
    for (std::int64_t i = 0; i < length * 4 * 6; ++i) {
      EXPECT_EQ(call.out.get(begin * 4 * 6 + i), reversed.out.get((end - length) * 4 * 6 + i));
    }
    begin += length, end -= length;
  }
}

}  // namespace
}  // namespace parapet
