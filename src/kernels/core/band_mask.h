#pragma once

#include "kernels/core/params.h"
#include "plan/band.h"

// Which keys the rows of a segment see: plan/band.h in 32-bit numbers, for use inside a kernel.

namespace parapet::kernels {

using plan::int64;

// Keys [begin, end) of a segment.
struct KeyRange {
  int begin;
  int end;

  PARAPET_HOST_DEVICE constexpr bool contains(int key) const { return begin <= key && key < end; }
};

PARAPET_HOST_DEVICE constexpr plan::Band band_of(const ForwardParams& params) {
  return {params.band_left, params.band_right};
}

// Query `row` sees the keys low + row ... high + row that exist. Without an edge that side is open.
template <bool kLeftEdge, bool kRightEdge>
struct BandMask {
  int low;
  int high;
  int keys;

  PARAPET_HOST_DEVICE constexpr KeyRange of_row(int row) const {
    return {kLeftEdge ? plan::max(low + row, 0) : 0,
            kRightEdge ? plan::min(high + row + 1, keys) : keys};
  }
  // The keys that some row in [first, last] may see.
  PARAPET_HOST_DEVICE constexpr KeyRange of_rows(int first, int last) const {
    return {of_row(first).begin, of_row(last).end};
  }
  // The keys that every row in [first, last] sees; the end may lie before the begin.
  PARAPET_HOST_DEVICE constexpr KeyRange seen_by_all(int first, int last) const {
    return {of_row(last).begin, of_row(first).end};
  }
  // Whether an edge hides a key in [begin, end) from some row in [first, last]. Without a minimum
  // or a maximum, which the uniform registers lack.
  PARAPET_HOST_DEVICE constexpr bool cuts(int first, int last, int begin, int end) const {
    return (kLeftEdge && begin < low + last) || (kRightEdge && end > high + first + 1);
  }
  // The same mask with rows counted from `row`.
  PARAPET_HOST_DEVICE constexpr BandMask from_row(int row) const {
    return {low + row, high + row, keys};
  }
};

template <bool kLeftEdge, bool kRightEdge>
PARAPET_HOST_DEVICE constexpr BandMask<kLeftEdge, kRightEdge> band_mask(plan::Band band,
                                                                        int seqlen_q,
                                                                        int seqlen_k) {
  const int64 diagonal = int64{seqlen_k} - seqlen_q;
  const int64 low = diagonal - plan::min(band.left, int64{kMaxRows});
  const int64 high = diagonal + plan::min(band.right, int64{kMaxRows});
  return {static_cast<int>(low), static_cast<int>(plan::min(high, int64{seqlen_k})), seqlen_k};
}

}  // namespace parapet::kernels
