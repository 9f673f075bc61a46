#include "plan/segment.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <vector>

namespace parapet::plan {
namespace {

// What a hostile length array may hold.
const std::vector<int64> kGarbage = {0,
                                     1,
                                     5,
                                     9,
                                     10,
                                     11,
                                     -1,
                                     -7,
                                     std::numeric_limits<std::int32_t>::min(),
                                     std::numeric_limits<std::int32_t>::max(),
                                     std::numeric_limits<int64>::min(),
                                     std::numeric_limits<int64>::max()};

TEST(SegmentTest, PackedExtentNeverLeavesTheTensor) {
  for (const int64 total : {0, 1, 10}) {
    for (const int64 first : kGarbage) {
      for (const int64 last : kGarbage) {
        const Extent extent = packed_extent(first, last, total);
        EXPECT_GE(extent.begin, 0);
        EXPECT_GE(extent.length, 0);
        EXPECT_LE(extent.end(), total);
        const bool valid = 0 <= first && first <= last && last <= total;
        EXPECT_EQ(extent.clamped, !valid) << first << " " << last << " " << total;
        if (valid) {
          EXPECT_EQ(extent.begin, first);
          EXPECT_EQ(extent.end(), last);
        }
      }
    }
  }
}

TEST(SegmentTest, UsedExtentStaysInItsSegment) {
  const Extent segment = packed_extent(3, 8, 10);
  for (const int64 used : kGarbage) {
    const Extent extent = used_extent(segment, used);
    EXPECT_EQ(extent.begin, 3);
    EXPECT_EQ(extent.clamped, used < 0 || used > 5);
    EXPECT_EQ(extent.length, clamp(used, int64{0}, int64{5}));
  }
}

TEST(SegmentTest, ClampingIsRememberedWhenTheUsedLengthIsValid) {
  EXPECT_TRUE(used_extent(packed_extent(-1, 8, 10), 2).clamped);
  EXPECT_FALSE(used_extent(dense_extent(4), 4).clamped);
}

}  // namespace
}  // namespace parapet::plan
