#include "plan/cpu_schedule.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace parapet::plan {
namespace {

CpuCall random_call(std::mt19937& engine) {
  const auto between = [&](int64 low, int64 high) {
    return low + static_cast<int64>(engine()) % (high - low + 1);
  };
  CpuCall call = {.num_heads_k = between(1, 5),
                  .group = between(1, 6),
                  .head_dim = between(1, 128),
                  .head_dim_v = between(1, 128)};
  if (engine() % 2) call.band.right = between(0, 300);
  if (engine() % 2) call.band.left = between(0, 300);
  if (engine() % 2) call.num_splits = static_cast<int>(between(0, 40));
  return call;
}

std::vector<CpuSegment> random_segments(std::mt19937& engine, const CpuCall& call) {
  std::vector<CpuSegment> segments;
  for (auto count = engine() % 12; count > 0; --count) {
    const int64 limits[] = {1, 10, 300, 5000, 50'000};
    const int64 seqlen_q = static_cast<int64>(engine()) % limits[engine() % 5];
    const int64 seqlen_k = static_cast<int64>(engine()) % limits[engine() % 5];
    segments.push_back(plan_cpu_segment(call, seqlen_q, seqlen_k));
  }
  return segments;
}

TEST(CpuSegment, KeysAreWhatRowsSee) {
  std::mt19937 engine(1);
  for (int round = 0; round < 2000; ++round) {
    const CpuCall call = random_call(engine);
    const int64 seqlen_q = engine() % 40 + 1, seqlen_k = engine() % 400;
    const CpuSegment segment = plan_cpu_segment(call, seqlen_q, seqlen_k);
    EXPECT_GE(segment.keys.begin, 0);
    EXPECT_LE(segment.keys.end, seqlen_k);
    for (int64 row = 0; row < seqlen_q; ++row) {
      const Range visible = visible_keys(call.band, row, seqlen_q, seqlen_k);
      if (visible.empty()) continue;
      EXPECT_GE(visible.begin, segment.keys.begin);
      EXPECT_LE(visible.end, segment.keys.end);
    }
  }
}

TEST(CpuSegment, ChunksCoverTheKeysOnce) {
  std::mt19937 engine(2);
  for (int round = 0; round < 2000; ++round) {
    const CpuCall call = random_call(engine);
    for (const CpuSegment& segment : random_segments(engine, call)) {
      EXPECT_EQ(segment.chunk_keys % kCpuTileKeys, 0);
      int64 next = segment.keys.begin;
      for (int64 i = 0; i < segment.chunks(); ++i) {
        const Range chunk = segment.chunk(i);
        EXPECT_EQ(chunk.begin, next);
        EXPECT_LE(chunk.size(), segment.chunk_keys);
        if (segment.keys.size() > 0) {
          EXPECT_GT(chunk.size(), 0);
        }
        next = chunk.end;
      }
      EXPECT_EQ(next, segment.keys.end);
      if (call.num_splits > 1) {
        EXPECT_LE(segment.chunks(), call.num_splits);
      }
    }
  }
}

TEST(CpuSegment, FewRowsArePlannedForDecoding) {
  const CpuCall call = {.num_heads_k = 8, .group = 4, .head_dim = 128, .head_dim_v = 128};
  EXPECT_EQ(plan_cpu_segment(call, 2, 4096).path, CpuPath::kFewRows);
  EXPECT_EQ(plan_cpu_segment(call, 3, 4096).path, CpuPath::kPanels);
  EXPECT_GT(plan_cpu_segment(call, 1, 4096).chunks(), 1);
  EXPECT_GT(plan_cpu_segment(call, 20, 100'000).chunks(), 16);
  EXPECT_EQ(plan_cpu_segment(call, 4096, 4096).chunks(), 1);
}

// Without a mask a key costs what it costs; with a window, only what is visible counts.
TEST(CpuSegment, CostFollowsTheVisiblePairs) {
  CpuCall call = {.head_dim = 64, .head_dim_v = 64};
  const double full = plan_cpu_segment(call, 8192, 8192).cost;
  call.band.right = 0;
  EXPECT_NEAR(plan_cpu_segment(call, 8192, 8192).cost / full, 0.5, 0.01);
  call.band.left = 63;
  EXPECT_LT(plan_cpu_segment(call, 8192, 8192).cost / full, 0.02);
}

TEST(CpuBlocks, CoverThePanelsOnce) {
  for (const int threads : {1, 2, 7, 64}) {
    for (int64 panels = 1; panels < 400; ++panels) {
      const CpuBlocks blocks(panels, threads);
      int64 next = panels;
      for (int64 i = 0; i < blocks.size(); ++i) {
        EXPECT_EQ(blocks.block(i).end, next);
        EXPECT_GT(blocks.block(i).size(), 0);
        EXPECT_LE(blocks.block(i).size(), kCpuBlockPanels);
        next = blocks.block(i).begin;
      }
      EXPECT_EQ(next, 0);
    }
  }
}

TEST(CpuSchedule, CoversEveryHeadOnce) {
  std::mt19937 engine(3);
  for (int round = 0; round < 1000; ++round) {
    const CpuCall call = random_call(engine);
    const std::vector<CpuSegment> segments = random_segments(engine, call);
    const int threads = 1 + static_cast<int>(engine() % 9);
    const CpuSchedule schedule = schedule_cpu(call, segments, threads);
    EXPECT_GE(schedule.threads, 1);
    EXPECT_LE(schedule.threads, threads);
    std::map<std::pair<int64, int64>, int> taken;
    for (std::size_t i = 0; i < schedule.units.size(); ++i) {
      const CpuUnit& unit = schedule.units[i];
      const CpuSegment& segment = segments[unit.segment];
      EXPECT_EQ(unit.sharing != CpuSharing::kNone, static_cast<int64>(i) < schedule.shared);
      if (unit.sharing == CpuSharing::kNone) {
        EXPECT_EQ(segment.chunks(), 1);
      }
      if (unit.sharing == CpuSharing::kBlocks) {
        EXPECT_EQ(segment.path, CpuPath::kPanels);
      }
      if (segment.path == CpuPath::kFewRows) {
        EXPECT_LE(unit.head_end - unit.head_begin, kCpuFewRowsHeads);
      }
      for (int64 head = unit.head_begin; head < unit.head_end; ++head) {
        ++taken[{unit.segment, head}];
      }
    }
    int64 heads = 0;
    for (const CpuSegment& segment : segments) heads += segment.rows > 0 ? call.num_heads_k : 0;
    EXPECT_EQ(static_cast<int64>(taken.size()), heads);
    for (const auto& [head, times] : taken) EXPECT_EQ(times, 1);
  }
}

TEST(CpuSchedule, ATinyCallStaysOnItsThread) {
  const CpuCall call = {.head_dim = 64, .head_dim_v = 64};
  const CpuSchedule schedule = schedule_cpu(call, {plan_cpu_segment(call, 16, 16)}, 64);
  EXPECT_EQ(schedule.threads, 1);
  EXPECT_EQ(schedule.shared, 0);
}

TEST(CpuSchedule, DecodingOneSequenceReachesManyThreads) {
  const CpuCall call = {.num_heads_k = 8, .group = 4, .head_dim = 128, .head_dim_v = 128};
  const std::vector<CpuSegment> segments = {plan_cpu_segment(call, 1, 4096)};
  const CpuSchedule schedule = schedule_cpu(call, segments, 64);
  int64 items = 0;
  for (int64 i = 0; i < schedule.shared; ++i) items += segments[0].chunks();
  EXPECT_GE(items, 32);
}

TEST(CpuSchedule, LongUnitsComeFirst) {
  const CpuCall call = {.head_dim = 64, .head_dim_v = 64};
  std::vector<CpuSegment> segments;
  for (const int64 length : {500, 8000, 3000, 600, 5000}) {
    segments.push_back(plan_cpu_segment(call, length, length));
  }
  const CpuSchedule schedule = schedule_cpu(call, segments, 2);
  ASSERT_GE(schedule.units.size(), 3u);
  EXPECT_EQ(schedule.units[0].segment, 1);
  EXPECT_EQ(schedule.units[1].segment, 4);
  EXPECT_EQ(schedule.units[2].segment, 2);
}

TEST(CpuSchedule, ManySmallSegmentsStayLinear) {
  const CpuCall call = {.num_heads_k = 8, .head_dim = 64, .head_dim_v = 64};
  const std::vector<CpuSegment> segments(80'000, plan_cpu_segment(call, 16, 16));
  const CpuSchedule schedule = schedule_cpu(call, segments, 2);
  EXPECT_LE(schedule.units.size(), 4 * segments.size());
}

TEST(CpuSchedule, PrintsItself) {
  const CpuCall call = {.num_heads_k = 2, .head_dim = 64, .head_dim_v = 64};
  const std::vector<CpuSegment> segments = {plan_cpu_segment(call, 5000, 5000),
                                            plan_cpu_segment(call, 10, 10)};
  const std::string text = schedule_cpu(call, segments, 2).text();
  EXPECT_NE(text.find("2 threads"), std::string::npos) << text;
  EXPECT_NE(text.find("segment 0: 2 units of 1 key heads, by blocks of panels"), std::string::npos)
      << text;
  EXPECT_NE(text.find("segment 1"), std::string::npos) << text;
}

TEST(CpuSlots, AreEnoughButNotMore) {
  EXPECT_EQ(cpu_slots(1, 10, 64, 1000), 1);
  EXPECT_EQ(cpu_slots(100, 1, 64, 1000), 66);
  EXPECT_EQ(cpu_slots(100, 64, 64, 1000), 3);
  // Two, however large they are: a unit is packed before the one ahead of it is computed.
  EXPECT_EQ(cpu_slots(100, 1, 64, int64{1} << 40), 2);
  EXPECT_LE(cpu_slots(1000, 1, 64, int64{1} << 27) << 27, int64{1} << 30);
}

}  // namespace
}  // namespace parapet::plan
