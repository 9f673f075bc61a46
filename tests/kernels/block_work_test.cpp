#include "kernels/core/block_work.h"

#include <gtest/gtest.h>

#include <vector>

namespace parapet::kernels {
namespace {

TEST(UnitOfRound, GivesEachUnitToOneBlock) {
  for (int blocks = 1; blocks < 9; ++blocks) {
    constexpr int kRounds = 5;
    std::vector<int> times(static_cast<std::size_t>(kRounds * blocks));
    for (int block = 0; block < blocks; ++block)
      for (int round = 0; round < kRounds; ++round)
        ++times.at(static_cast<std::size_t>(unit_of_round(round, block, blocks)));
    EXPECT_EQ(times, std::vector<int>(times.size(), 1));
  }
}

TEST(UnitOfRound, GivesEachBlockAsMuchWhereUnitsGetShorter) {
  constexpr int kBlocks = 7, kRounds = 6;
  for (int block = 0; block < kBlocks; ++block) {
    int sum = 0;
    for (int round = 0; round < kRounds; ++round) sum += unit_of_round(round, block, kBlocks);
    EXPECT_EQ(sum, kRounds * (kRounds * kBlocks - 1) / 2);
  }
}

TEST(RowsOfUnit, CoverEachTileOnce) {
  for (const bool paired : {false, true}) {
    const BlockShape shape{.query_tile = 16, .heads_per_tile = 1, .paired = paired};
    for (int rows = 1; rows < 200; ++rows) {
      const int tiles = (rows + 15) / 16, units = paired ? (tiles + 1) / 2 : tiles;
      std::vector<int> times(static_cast<std::size_t>(tiles));
      for (int unit = 0; unit < units; ++unit) {
        const UnitRows first = rows_of_unit(unit, rows, shape);
        EXPECT_EQ(first.first_row % 16, 0);
        ++times.at(static_cast<std::size_t>(first.first_row / 16));
        if (first.short_row >= 0) {
          EXPECT_TRUE(paired);
          EXPECT_LT(first.short_row, first.first_row);
          EXPECT_EQ(first.first_row + first.short_row, (tiles - 1) * 16);  // equally long
          ++times.at(static_cast<std::size_t>(first.short_row / 16));
        }
      }
      EXPECT_EQ(times, std::vector<int>(times.size(), 1));
    }
  }
}

}  // namespace
}  // namespace parapet::kernels
