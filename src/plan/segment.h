#pragma once

#include "plan/host_device.h"

// Where a segment lies in its tensor. Lengths come from memory that nobody vouches for: whatever
// they say, the extents below stay inside the tensor, and `clamped` tells when they had to be
// changed.

namespace parapet::plan {

// Rows [begin, begin + length) of a tensor.
struct Extent {
  int64 begin = 0;
  int64 length = 0;
  bool clamped = false;

  PARAPET_HOST_DEVICE constexpr int64 end() const { return begin + length; }
};

// Entry `batch` of a dense tensor with `seqlen` rows an entry: rows count from the entry's first.
PARAPET_HOST_DEVICE constexpr Extent dense_extent(int64 seqlen) {
  return {0, seqlen, false};
}

// Rows cu_seqlens[b] .. cu_seqlens[b + 1] of a packed tensor of `total` rows.
PARAPET_HOST_DEVICE constexpr Extent packed_extent(int64 first, int64 last, int64 total) {
  const int64 begin = clamp(first, int64{0}, total);
  const int64 end = clamp(last, begin, total);
  return {begin, end - begin, begin != first || end != last};
}

// The first `used` rows of an extent.
PARAPET_HOST_DEVICE constexpr Extent used_extent(Extent extent, int64 used) {
  const int64 length = clamp(used, int64{0}, extent.length);
  return {extent.begin, length, extent.clamped || length != used};
}

// One batch entry: its queries and its keys, both cut to what is used.
struct Segment {
  Extent query;
  Extent key;
};

}  // namespace parapet::plan
