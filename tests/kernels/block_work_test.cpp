#include "kernels/core/block_work.h"

#include <gtest/gtest.h>

#include <set>
#include <utility>

namespace parapet::kernels {
namespace {

TEST(PlaceTile, GivesEachTileOfEachSlotToOneBlock) {
  for (int64 tiles = 1; tiles < 6; ++tiles)
    for (int64 slots = 1; slots < 8; ++slots)
      for (int64 group = 1; group <= slots; ++group) {
        std::set<std::pair<int64, int64>> places;
        for (int64 index = 0; index < tiles * slots; ++index) {
          const TilePlace place = place_tile(index, tiles, slots, group);
          EXPECT_GE(place.slot, 0);
          EXPECT_LT(place.slot, slots);
          EXPECT_GE(place.tile, 0);
          EXPECT_LT(place.tile, tiles);
          places.emplace(place.slot, place.tile);
        }
        EXPECT_EQ(places.size(), static_cast<std::size_t>(tiles * slots));
      }
}

TEST(PlaceTile, RunsTheLongTilesOfAGroupFirst) {
  constexpr int64 kTiles = 5, kSlots = 7, kGroup = 3;
  for (int64 index = 1; index < kTiles * kSlots; ++index) {
    const TilePlace before = place_tile(index - 1, kTiles, kSlots, kGroup);
    const TilePlace place = place_tile(index, kTiles, kSlots, kGroup);
    EXPECT_LE(before.slot / kGroup, place.slot / kGroup);
    if (before.slot / kGroup == place.slot / kGroup) {
      EXPECT_GE(before.tile, place.tile);
    }
  }
}

TEST(SlotsPerGroup, IsBetweenOneKeyHeadAndAllSlots) {
  for (const int64 key_rows : {int64{0}, int64{1}, int64{4096}, int64{kMaxRows}})
    for (const int64 key_heads : {1, 4, 8}) {
      const int64 group = slots_per_group(32, key_heads, key_rows, 512);
      EXPECT_GE(group, 32 / key_heads);
      EXPECT_LE(group, 32);
    }
  EXPECT_EQ(slots_per_group(64, 64, 4096, 512), kGroupBytes / (4096 * 512));
}

}  // namespace
}  // namespace parapet::kernels
