#include "plan/forward_plan.h"

#include <gtest/gtest.h>

#include "parapet/error.h"

namespace parapet::plan {
namespace {

TEST(ForwardPlanTest, PairsAreThoseThatAreVisible) {
  for (const int64 left : {0LL, 1LL, 3LL, 20LL, kUnlimited}) {
    for (const int64 right : {0LL, 1LL, 4LL, 20LL, kUnlimited}) {
      for (int64 query = 0; query <= 12; ++query) {
        for (int64 key = 0; key <= 12; ++key) {
          int64 pairs = 0;
          for (int64 row = 0; row < query; ++row) {
            pairs += visible_keys({left, right}, row, query, key).size();
          }
          ASSERT_EQ(count_visible_pairs({left, right}, {query, key}), pairs)
              << left << " " << right << " " << query << " " << key;
        }
      }
    }
  }
}

TEST(ForwardPlanTest, PairsOfLongSegmentsAreExact) {
  const int64 long_segment = 2'000'000'001;
  EXPECT_EQ(count_visible_pairs({}, {long_segment, 4'000'000'000}), long_segment * 4'000'000'000);
  EXPECT_EQ(count_visible_pairs({kUnlimited, 0}, {long_segment, long_segment}),
            long_segment * ((long_segment + 1) / 2));
  EXPECT_EQ(count_visible_pairs({9, 0}, {long_segment, long_segment}), 10 * long_segment - 45);
}

TEST(ForwardPlanTest, TilesAddUp) {
  const ForwardPlan plan = plan_forward({.num_heads = 4,
                                         .num_heads_k = 2,
                                         .head_dim = 64,
                                         .head_dim_v = 32,
                                         .band = {kUnlimited, 0},
                                         .segments = {{300, 300}, {0, 50}, {100, 0}, {300, 300}},
                                         .tile_rows = 128,
                                         .tile_keys = 64});
  // Rows of 128 against 5 key tiles of 64 keys: the diagonal crosses 2 of 2, 2 of 4 and 1 of 5.
  EXPECT_EQ(plan.segments[0].query_tiles, 3);
  EXPECT_EQ(plan.segments[0].masked, 2 + 2 + 1);
  EXPECT_EQ(plan.segments[0].full, 0 + 2 + 4);
  EXPECT_EQ(plan.segments[0].skipped, 3 + 1 + 0);
  EXPECT_EQ(plan.segments[1].query_tiles, 0);
  EXPECT_EQ(plan.segments[2].full + plan.segments[2].masked + plan.segments[2].skipped, 0);
  EXPECT_EQ(plan.total.full, 2 * plan.segments[0].full);
  EXPECT_EQ(plan.total.visible_pairs, 2 * (300 * 301 / 2));
  EXPECT_EQ(plan.flops, plan.total.visible_pairs * 4 * 2 * (64 + 32));
}

TEST(ForwardPlanTest, TheVideoCallCountsAsReported) {
  const ForwardPlan plan = plan_forward({.num_heads = 56,
                                         .num_heads_k = 56,
                                         .head_dim = 128,
                                         .head_dim_v = 128,
                                         .band = {},
                                         .segments = {{4032, 10524},
                                                      {5040, 15564},
                                                      {5040, 17580},
                                                      {5040, 17580},
                                                      {5040, 17580},
                                                      {5040, 17580},
                                                      {5040, 12540},
                                                      {1008, 7500}},
                                         .tile_rows = 128,
                                         .tile_keys = 128});
  EXPECT_NEAR(static_cast<double>(plan.flops), 15.656e12, 0.001e12);
  EXPECT_EQ(plan.total.masked + plan.total.skipped, 0);
}

TEST(ForwardPlanTest, TextSummarisesManySegments) {
  ForwardShape shape{.num_heads = 1, .num_heads_k = 1, .head_dim = 8, .head_dim_v = 8};
  shape.tile_rows = shape.tile_keys = 16;
  for (int64 i = 0; i < 5000; ++i) shape.segments.push_back({i % 40, i % 40});
  const std::string text = plan_forward(shape).text();
  for (const char* part : {"5000 segments", "28 more pairs of lengths"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " is not in:\n" << text;
  }
}

TEST(ForwardPlanTest, WorkBeyondCountingIsRefused) {
  const int64 huge = int64{1} << 40;
  ForwardShape shape{.num_heads = 1, .num_heads_k = 1, .head_dim = 8, .head_dim_v = 8};
  shape.segments = {{huge, huge}};
  shape.tile_rows = shape.tile_keys = huge;
  EXPECT_THROW(plan_forward(shape), Error);
}

}  // namespace
}  // namespace parapet::plan
