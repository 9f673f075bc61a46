#pragma once

#include "plan/host_device.h"

// Causal masks and windows are one thing: query i sees the keys in a band around its diagonal key
// i + seqlen_k - seqlen_q. Everything that skips or masks work asks the functions below.

namespace parapet::plan {

// No tensor has more rows: sums of a few lengths, and products with a small number, do not
// overflow.
inline constexpr int64 kMaxLength = int64{1} << 48;

// Far beyond any length, and small enough that sums of a few of them do not overflow.
inline constexpr int64 kUnlimited = int64{1} << 60;

// How far the band reaches to the left and to the right of the diagonal key; both ends included.
struct Band {
  int64 left = kUnlimited;
  int64 right = kUnlimited;
};

// Indices [begin, end); empty when begin == end.
struct Range {
  int64 begin = 0;
  int64 end = 0;

  PARAPET_HOST_DEVICE constexpr int64 size() const { return end - begin; }
  PARAPET_HOST_DEVICE constexpr bool empty() const { return begin == end; }
};

// The keys that query `row` sees, for 0 <= row < seqlen_q.
PARAPET_HOST_DEVICE constexpr Range visible_keys(Band band, int64 row, int64 seqlen_q,
                                                 int64 seqlen_k) {
  const int64 diagonal = row + seqlen_k - seqlen_q;
  const int64 begin = clamp(diagonal - band.left, int64{0}, seqlen_k);
  const int64 end = clamp(diagonal + band.right + 1, begin, seqlen_k);
  return {begin, end};
}

// The key tiles that a tile of queries has to visit, and those among them that need no mask: every
// query of the tile sees every key of a tile in `full`. Tiles in `visited` but not in `full` are
// masked; tiles outside `visited` hold no visible pair.
struct KeyTiles {
  Range visited;
  Range full;
};

// For the queries [rows.begin, rows.end), not empty, against tiles of `tile_keys` keys.
PARAPET_HOST_DEVICE constexpr KeyTiles key_tiles(Band band, Range rows, int64 seqlen_q,
                                                 int64 seqlen_k, int64 tile_keys) {
  // Both ends of a query's range grow with its row, so the first and the last query bound the tile.
  const Range first = visible_keys(band, rows.begin, seqlen_q, seqlen_k);
  const Range last = visible_keys(band, rows.end - 1, seqlen_q, seqlen_k);
  if (first.begin >= last.end) return {};
  const Range visited{first.begin / tile_keys, ceil_div(last.end, tile_keys)};

  // Seen by all: from the last query's begin to the first query's end. The tensor's last tile may
  // be short; it is full when all keys that exist are seen.
  const int64 full_begin = ceil_div(last.begin, tile_keys);
  const int64 full_end =
      first.end == seqlen_k ? ceil_div(seqlen_k, tile_keys) : first.end / tile_keys;
  const int64 begin = clamp(full_begin, visited.begin, visited.end);
  return {visited, {begin, clamp(full_end, begin, visited.end)}};
}

}  // namespace parapet::plan
