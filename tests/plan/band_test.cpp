#include "plan/band.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace parapet::plan {
namespace {

const std::vector<int64> kReaches = {0, 1, 2, 3, 5, 11, kUnlimited};

// Calls `check(band, seqlen_q, seqlen_k)` for all small cases.
template <class Check>
void for_small_cases(Check check) {
  for (const int64 left : kReaches) {
    for (const int64 right : kReaches) {
      for (int64 seqlen_q = 0; seqlen_q <= 9; ++seqlen_q) {
        for (int64 seqlen_k = 0; seqlen_k <= 9; ++seqlen_k) {
          check(Band{left, right}, seqlen_q, seqlen_k);
        }
      }
    }
  }
}

bool is_visible(Band band, int64 row, int64 key, int64 seqlen_q, int64 seqlen_k) {
  const int64 diagonal = row + seqlen_k - seqlen_q;
  return key >= diagonal - band.left && key <= diagonal + band.right;
}

TEST(BandTest, VisibleKeysAreTheDefinition) {
  for_small_cases([](Band band, int64 seqlen_q, int64 seqlen_k) {
    for (int64 row = 0; row < seqlen_q; ++row) {
      const Range keys = visible_keys(band, row, seqlen_q, seqlen_k);
      ASSERT_LE(0, keys.begin);
      ASSERT_LE(keys.begin, keys.end);
      ASSERT_LE(keys.end, seqlen_k);
      for (int64 key = 0; key < seqlen_k; ++key) {
        ASSERT_EQ(key >= keys.begin && key < keys.end,
                  is_visible(band, row, key, seqlen_q, seqlen_k))
            << fmt::format("row {} key {} of {} x {}", row, key, seqlen_q, seqlen_k);
      }
    }
  });
}

// Each pair is visited once or lies in a tile that has no visible pair; full tiles need no mask;
// tiles that are visited have something to do.
TEST(BandTest, KeyTilesVisitWhatIsVisible) {
  for_small_cases([](Band band, int64 seqlen_q, int64 seqlen_k) {
    for (int64 tile_rows = 1; tile_rows <= 4; ++tile_rows) {
      for (int64 tile_keys = 1; tile_keys <= 4; ++tile_keys) {
        for (int64 begin = 0; begin < seqlen_q; begin += tile_rows) {
          const Range rows{begin, min(begin + tile_rows, seqlen_q)};
          const KeyTiles tiles = key_tiles(band, rows, seqlen_q, seqlen_k, tile_keys);
          const auto where =
              fmt::format("band {} {}, rows {}-{} of {}, {} keys in tiles of {}", band.left,
                          band.right, rows.begin, rows.end, seqlen_q, seqlen_k, tile_keys);
          ASSERT_LE(0, tiles.visited.begin) << where;
          ASSERT_LE(tiles.visited.end, ceil_div(seqlen_k, tile_keys)) << where;
          ASSERT_LE(tiles.visited.begin, tiles.full.begin) << where;
          ASSERT_LE(tiles.full.begin, tiles.full.end) << where;
          ASSERT_LE(tiles.full.end, tiles.visited.end) << where;
          for (int64 tile = 0; tile * tile_keys < seqlen_k; ++tile) {
            int64 visible = 0, pairs = 0;
            for (int64 row = rows.begin; row < rows.end; ++row) {
              for (int64 key = tile * tile_keys; key < min((tile + 1) * tile_keys, seqlen_k);
                   ++key) {
                visible += is_visible(band, row, key, seqlen_q, seqlen_k);
                pairs += 1;
              }
            }
            const bool visited = tile >= tiles.visited.begin && tile < tiles.visited.end;
            const bool full = tile >= tiles.full.begin && tile < tiles.full.end;
            ASSERT_EQ(visited, visible > 0) << where << ", tile " << tile;
            ASSERT_EQ(full, visible == pairs) << where << ", tile " << tile;
          }
        }
      }
    }
  });
}

TEST(BandTest, HugeLengthsDoNotOverflow) {
  const int64 huge = int64{1} << 40;
  const Range last = visible_keys({kUnlimited, 0}, huge - 1, huge, huge);
  EXPECT_EQ(last.begin, 0);
  EXPECT_EQ(last.end, huge);
  const Range none = visible_keys({kUnlimited, 0}, 0, huge, 1);
  EXPECT_TRUE(none.empty());
  const KeyTiles tiles = key_tiles({1023, 0}, {huge - 128, huge}, huge, huge, 128);
  EXPECT_EQ(tiles.visited.size(), 9);
  EXPECT_EQ(tiles.full.size(), 7);
}

}  // namespace
}  // namespace parapet::plan
