#pragma once

#include "plan/band.h"
#include "plan/segment.h"

// Which query tile a block works on, without a host that knows the lengths: the grid is an upper
// bound computed from extents alone, and each index either names one tile or does not exist.

namespace parapet::plan {

// The query rows of a batch, cut into tiles of `tile_rows`. Tiles never span segments.
//
// Each segment owns a run of slots, enough for its tiles wherever it begins. Of a packed tensor the
// run of segment b begins at slot begin(b) / tile_rows + b, which grows with b, so a slot finds its
// segment by bisection instead of a prefix sum over all lengths; a segment wastes one slot at most.
struct TileSchedule {
  int64 batch = 0;
  int64 num_heads = 0;
  int64 rows = 0;  // packed: of the tensor; dense: of a batch entry
  int64 tile_rows = 1;
  bool packed = false;

  PARAPET_HOST_DEVICE constexpr int64 slots() const {
    if (batch == 0) return 0;
    return packed ? rows / tile_rows + batch : batch * ceil_div(rows, tile_rows);
  }

  // How many indices there are; more may be launched, they do not exist.
  PARAPET_HOST_DEVICE constexpr int64 size() const { return slots() * num_heads; }
};

struct Tile {
  bool exists = false;
  int64 segment = 0;
  int64 head = 0;
  Range rows;  // of the segment
};

// The tile of `index`. All tiles of a head are neighbours, so that blocks that run together share keys
// in the cache. `cu_seqlens(b)` reads an entry of the length array, 0 <= b <= batch, and is called for
// packed schedules only; `used(b, extent)` cuts a segment to its used length. Whatever they return, a
// tile that exists lies inside its tensor; lengths that are valid give each tile exactly one index.
template <class CuSeqlens, class Used>
PARAPET_HOST_DEVICE constexpr Tile find_tile(const TileSchedule& schedule, int64 index,
                                             const CuSeqlens& cu_seqlens, const Used& used) {
  if (index < 0 || index >= schedule.size()) return {};
  const int64 slot = index % schedule.slots();
  Tile tile;
  tile.head = index / schedule.slots();

  int64 first_slot = 0;
  Extent extent;
  if (schedule.packed) {
    const auto begin = [&](int64 b) { return clamp(int64{cu_seqlens(b)}, int64{0}, schedule.rows); };
    int64 low = 0, high = schedule.batch;  // the segment is in [low, high)
    while (high - low > 1) {
      const int64 middle = low + (high - low) / 2;
      (begin(middle) / schedule.tile_rows + middle <= slot ? low : high) = middle;
    }
    tile.segment = low;
    first_slot = begin(low) / schedule.tile_rows + low;
    extent = packed_extent(cu_seqlens(low), cu_seqlens(low + 1), schedule.rows);
  } else {
    const int64 tiles = ceil_div(schedule.rows, schedule.tile_rows);
    tile.segment = slot / tiles;
    first_slot = tile.segment * tiles;
    extent = dense_extent(schedule.rows);
  }

  extent = used(tile.segment, extent);
  const int64 begin = (slot - first_slot) * schedule.tile_rows;
  tile.exists = begin >= 0 && begin < extent.length;
  if (tile.exists) tile.rows = {begin, min(begin + schedule.tile_rows, extent.length)};
  return tile;
}

}  // namespace parapet::plan
