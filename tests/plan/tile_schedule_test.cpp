#include "plan/tile_schedule.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <tuple>
#include <vector>

namespace parapet::plan {
namespace {

using TileKey = std::tuple<int64, int64, int64>;  // segment, head, first row

// How often each tile is found over the whole grid and `excess` indices beyond it.
std::map<TileKey, int> find_all(const TileSchedule& schedule, const std::vector<int64>& cu_seqlens,
                                const std::vector<int64>& used, int64 excess) {
  std::map<TileKey, int> found;
  for (int64 index = -3; index < schedule.size() + excess; ++index) {
    const Tile tile = find_tile(
        schedule, index,
        [&](int64 b) {
          EXPECT_GE(b, 0);
          EXPECT_LE(b, schedule.batch);
          return cu_seqlens.at(b);
        },
        [&](int64 b, Extent extent) { return used.empty() ? extent : used_extent(extent, used.at(b)); });
    if (!tile.exists) continue;
    EXPECT_TRUE(tile.segment >= 0 && tile.segment < schedule.batch);
    EXPECT_TRUE(tile.head >= 0 && tile.head < schedule.num_heads);
    EXPECT_TRUE(tile.rows.begin >= 0 && tile.rows.begin < tile.rows.end);
    EXPECT_LE(tile.rows.size(), schedule.tile_rows);
    const Extent segment =
        schedule.packed ? packed_extent(cu_seqlens.at(tile.segment), cu_seqlens.at(tile.segment + 1),
                                        schedule.rows)
                        : dense_extent(schedule.rows);
    EXPECT_LE(tile.rows.end, segment.length);
    found[{tile.segment, tile.head, tile.rows.begin}] += 1;
  }
  return found;
}

// All tiles of segments with the given used lengths.
std::map<TileKey, int> expect_all(const TileSchedule& schedule, const std::vector<int64>& lengths) {
  std::map<TileKey, int> expected;
  for (int64 b = 0; b < schedule.batch; ++b) {
    for (int64 head = 0; head < schedule.num_heads; ++head) {
      for (int64 row = 0; row < lengths[b]; row += schedule.tile_rows) expected[{b, head, row}] = 1;
    }
  }
  return expected;
}

TEST(TileScheduleTest, PackedTilesAreFoundOnce) {
  // All batches of three segments of up to five rows, with rows before and after them unused.
  for (int64 tile_rows = 1; tile_rows <= 4; ++tile_rows) {
    for (int64 code = 0; code < 6 * 6 * 6; ++code) {
      const std::vector<int64> lengths = {code % 6, code / 6 % 6, code / 36};
      for (const int64 offset : {0, 2}) {
        std::vector<int64> cu_seqlens = {offset};
        for (const int64 length : lengths) cu_seqlens.push_back(cu_seqlens.back() + length);
        const TileSchedule schedule{3, 2, cu_seqlens.back() + offset, tile_rows, true};
        ASSERT_EQ(find_all(schedule, cu_seqlens, {}, 7), expect_all(schedule, lengths))
            << "lengths " << lengths[0] << " " << lengths[1] << " " << lengths[2] << ", tiles of "
            << tile_rows << ", offset " << offset;
      }
    }
  }
}

TEST(TileScheduleTest, UsedLengthsCutSegments) {
  const TileSchedule schedule{3, 2, 20, 4, true};
  EXPECT_EQ(find_all(schedule, {0, 9, 10, 20}, {5, 0, 10}, 9), expect_all(schedule, {5, 0, 10}));
  const TileSchedule dense{3, 2, 9, 4, false};
  EXPECT_EQ(find_all(dense, {}, {9, 0, 3}, 9), expect_all(dense, {9, 0, 3}));
}

TEST(TileScheduleTest, EmptyBatchesHaveNoTile) {
  EXPECT_TRUE(find_all({0, 2, 20, 4, true}, {0}, {}, 5).empty());
  EXPECT_TRUE(find_all({3, 0, 20, 4, true}, {0, 1, 2, 3}, {}, 5).empty());
  EXPECT_TRUE(find_all({3, 2, 0, 4, true}, {0, 0, 0, 0}, {}, 5).empty());
  EXPECT_TRUE(find_all({3, 2, 0, 4, false}, {}, {}, 5).empty());
}

TEST(TileScheduleTest, GarbageNeverLeavesTheTensor) {
  std::mt19937_64 random(7);
  const std::vector<int64> values = {0, 1, 3, 7, 19, 20, 21, -1, -2147483648LL, 2147483647LL};
  for (int round = 0; round < 3000; ++round) {
    std::vector<int64> cu_seqlens, used;
    for (int i = 0; i <= 4; ++i) cu_seqlens.push_back(values[random() % values.size()]);
    for (int i = 0; i < 4; ++i) used.push_back(values[random() % values.size()]);
    const int64 tile_rows = static_cast<int64>(1 + random() % 5);
    find_all({4, 2, 20, tile_rows, true}, cu_seqlens, round % 2 ? used : std::vector<int64>{}, 10);
  }
}

}  // namespace
}  // namespace parapet::plan
