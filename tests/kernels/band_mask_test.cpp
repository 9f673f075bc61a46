#include "kernels/core/band_mask.h"

#include <gtest/gtest.h>

namespace parapet::kernels {
namespace {

using plan::Band;
using plan::Range;

constexpr int64 kReaches[] = {0, 1, 2, 5, kMaxRows, plan::kUnlimited};

// Calls `check(mask, band, seqlen_q, seqlen_k)` for all small segments and bands.
template <bool kLeftEdge, bool kRightEdge, class Check>
void for_all_masks(const Check& check) {
  for (int seqlen_q = 1; seqlen_q < 9; ++seqlen_q)
    for (int seqlen_k = 0; seqlen_k < 9; ++seqlen_k)
      for (const int64 left : kReaches)
        for (const int64 right : kReaches) {
          if (!kLeftEdge && left < kMaxRows) continue;
          if (!kRightEdge && right < kMaxRows) continue;
          const Band band{left, right};
          check(band_mask<kLeftEdge, kRightEdge>(band, seqlen_q, seqlen_k), band, seqlen_q,
                seqlen_k);
        }
}

template <bool kLeftEdge, bool kRightEdge>
void check_rows() {
  for_all_masks<kLeftEdge, kRightEdge>(
      [](const auto& mask, const Band& band, int seqlen_q, int seqlen_k) {
        for (int row = 0; row < seqlen_q; ++row) {
          const Range visible = plan::visible_keys(band, row, seqlen_q, seqlen_k);
          for (int key = 0; key < seqlen_k; ++key) {
            const bool sees = visible.begin <= key && key < visible.end;
            EXPECT_EQ(mask.of_row(row).contains(key), sees) << row << " " << key;
            EXPECT_EQ(mask.from_row(row).of_row(0).contains(key), sees) << row << " " << key;
          }
        }
      });
}

TEST(BandMask, AgreesWithThePlan) {
  check_rows<true, true>();
  check_rows<true, false>();
  check_rows<false, true>();
  check_rows<false, false>();
}

TEST(BandMask, CutsWhatSomeRowDoesNotSee) {
  for_all_masks<true, true>([](const auto& mask, const Band&, int seqlen_q, int seqlen_k) {
    for (int first = 0; first < seqlen_q; ++first)
      for (int last = first; last < seqlen_q; ++last)
        for (int begin = 0; begin < seqlen_k; ++begin)
          for (int end = begin + 1; end <= seqlen_k; ++end) {
            bool hidden = false;
            for (int row = first; row <= last; ++row)
              for (int key = begin; key < end; ++key)
                hidden = hidden || !mask.of_row(row).contains(key);
            EXPECT_EQ(mask.cuts(first, last, begin, end), hidden);
          }
  });
}

TEST(BandMask, RowsSeeNothingOutsideTheirUnion) {
  for_all_masks<true, true>([](const auto& mask, const Band&, int seqlen_q, int seqlen_k) {
    const KeyRange any = mask.of_rows(0, seqlen_q - 1);
    for (int row = 0; row < seqlen_q; ++row)
      for (int key = 0; key < seqlen_k; ++key)
        EXPECT_LE(mask.of_row(row).contains(key), any.contains(key));
  });
}

TEST(BandMask, HoldsTheLargestExtents) {
  const auto open = band_mask<true, true>({}, kMaxRows, kMaxRows);
  EXPECT_EQ(open.of_row(kMaxRows - 1).begin, 0);
  EXPECT_EQ(open.of_row(kMaxRows - 1).end, kMaxRows);
  const auto causal = band_mask<false, true>({plan::kUnlimited, 0}, kMaxRows, 1);
  EXPECT_EQ(causal.of_row(kMaxRows - 1).end, 1);
  EXPECT_LE(causal.of_row(kMaxRows - 2).end, 0);
}

}  // namespace
}  // namespace parapet::kernels
