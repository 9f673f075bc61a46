// Causal masks and windows: which keys each row sees, at every edge that tiling has.

#include "cpu/on_target.h"
#include "support/call.h"
#include "support/check.h"

namespace parapet {
namespace {

using testing::Call;
using testing::expect_right;

class Masks : public testing::OnTarget {};
PARAPET_ON_EVERY_TARGET(Masks);

constexpr std::optional<std::int64_t> kNone = std::nullopt;

void expect_right_mask(std::int64_t seqlen_q, std::int64_t seqlen_k, std::int64_t group,
                       const ForwardOptions& options) {
  SCOPED_TRACE(::testing::Message()
               << "Sq " << seqlen_q << ", Sk " << seqlen_k << ", group " << group << ", causal "
               << options.causal << ", left " << options.window_left.value_or(-1) << ", right "
               << options.window_right.value_or(-1));
  const Call call({.batch = 1,
                   .seqlen_q = seqlen_q,
                   .seqlen_k = seqlen_k,
                   .num_heads = group,
                   .num_heads_k = 1,
                   .head_dim = 5,
                   .head_dim_v = 3});
  expect_right(call.tensors, options);
}

TEST_P(Masks, SmallLengthsAndWindows) {
  const std::optional<std::int64_t> reaches[] = {kNone, 0, 1, 4, 30};
  for (const std::int64_t seqlen_q : {1, 3, 9, 20}) {
    for (const std::int64_t seqlen_k : {1, 2, 9, 33}) {
      for (const auto left : reaches) {
        for (const auto right : reaches) {
          expect_right_mask(seqlen_q, seqlen_k, 1, {.window_left = left, .window_right = right});
        }
      }
    }
  }
}

// The diagonal meets panels, columns and groups of keys at every offset.
TEST_P(Masks, CausalAtEveryOffset) {
  for (std::int64_t seqlen_q = 1; seqlen_q < 60; seqlen_q += 3) {
    for (std::int64_t seqlen_k = 1; seqlen_k < 60; seqlen_k += 4) {
      expect_right_mask(seqlen_q, seqlen_k, 1, {.causal = true});
    }
  }
}

TEST_P(Masks, AroundTilesOfKeys) {
  for (const std::int64_t seqlen_k : {127, 128, 129, 255, 257, 391}) {
    expect_right_mask(70, seqlen_k, 1, {.causal = true});
    expect_right_mask(70, seqlen_k, 1, {.window_left = 130});
    expect_right_mask(70, seqlen_k, 1, {.window_left = 40, .window_right = 7});
  }
}

TEST_P(Masks, MoreQueriesThanKeys) {
  for (const std::int64_t group : {1, 3}) {
    expect_right_mask(300, 40, group, {.causal = true});
    expect_right_mask(300, 40, group, {.window_left = 3, .window_right = 3});
    expect_right_mask(300, 40, group, {.window_right = 200});
    expect_right_mask(6, 2, group, {.causal = true});
  }
}

// Heads of a group share panels, so rows of one query lie in neighbouring lanes.
TEST_P(Masks, GroupedHeads) {
  for (const std::int64_t group : {2, 5, 8, 17}) {
    for (const std::int64_t seqlen_q : {1, 2, 3, 11, 40}) {
      expect_right_mask(seqlen_q, 45, group, {.causal = true});
      expect_right_mask(seqlen_q, 45, group, {.causal = true, .window_left = 6});
    }
  }
}

// The whole tile before the window is masked, and so is the row's first piece.
TEST_P(Masks, ARowWhoseFirstTilesAreMasked) {
  expect_right_mask(640, 640, 1, {.causal = true, .window_left = 9});
  expect_right_mask(640, 640, 1, {.window_left = 9});
}

// Windows that mean the same.
TEST_P(Masks, CausalAsAWindow) {
  const std::int64_t length = 200;
  for (const ForwardOptions& options :
       {ForwardOptions{.causal = true}, ForwardOptions{.window_right = 0},
        ForwardOptions{.window_left = length - 1, .window_right = 0},
        ForwardOptions{.window_left = length, .window_right = 0},
        ForwardOptions{.causal = true, .window_left = length}}) {
    expect_right_mask(length, length, 1, options);
  }
}

// (L, 0) shows L + 1 keys: with values that count them, the output says how many.
TEST_P(Masks, BothEndsOfAWindowAreInside) {
  Call call({.batch = 1, .seqlen_q = 50, .seqlen_k = 50, .num_heads = 1, .num_heads_k = 1});
  call.q.fill(0);
  call.v.fill(0);
  for (std::int64_t d = 0; d < 6; ++d) call.v.set(20 * 6 + d, 1);  // key 20
  call.options = {.causal = true, .window_left = 4};
  call.run();
  for (std::int64_t row = 0; row < 50; ++row) {
    const bool sees = row >= 20 && row <= 24;
    EXPECT_NEAR(call.out.get(row * 6), sees ? 0.2 : 0.0, 1e-6) << "row " << row;
  }
}

}  // namespace
}  // namespace parapet
