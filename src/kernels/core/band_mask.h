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
};

PARAPET_HOST_DEVICE constexpr plan::Band band_of(const ForwardParams& params) {
  return {params.band_left, params.band_right};
}

// Of some neighbouring rows: the keys that any of them may see, and those that all of them see.
struct RowsView {
  KeyRange any;
  KeyRange all;
};

// Query `row` sees the keys low + row ... high + row that exist.
struct BandMask {
  int low;
  int high;
  int keys;

  PARAPET_HOST_DEVICE constexpr KeyRange of_row(int row) const {
    return {plan::max(low + row, 0), plan::min(high + row + 1, keys)};
  }
  // Keys that some row in [first, last] may see, and keys that all of them see.
  PARAPET_HOST_DEVICE constexpr KeyRange of_any(int first, int last) const {
    return {of_row(first).begin, of_row(last).end};
  }
  PARAPET_HOST_DEVICE constexpr KeyRange of_all(int first, int last) const {
    return {of_row(last).begin, of_row(first).end};
  }
};

PARAPET_HOST_DEVICE constexpr BandMask band_mask(plan::Band band, int seqlen_q, int seqlen_k) {
  const int64 diagonal = int64{seqlen_k} - seqlen_q;
  return {static_cast<int>(diagonal - plan::min(band.left, int64{kMaxRows})),
          static_cast<int>(plan::min(diagonal + plan::min(band.right, int64{kMaxRows}), int64{seqlen_k})),
          seqlen_k};
}

}  // namespace parapet::kernels
