#pragma once

#include "kernels/arch/memory.h"
#include "kernels/arch/thread.h"
#include "kernels/core/params.h"
#include "plan/host_device.h"

// Which query tiles of which heads a block works on, one after the other.
//
// Work comes in units: a query tile of a head or, where a mask lets rows at one end see few keys
// and rows at the other end many, a long and a short tile, so that units of a segment are equally
// long. Blocks deal the units out among themselves: forth in one round, back in the next, since a
// work list has the longest first.

namespace parapet::kernels {

using arch::u32;
using plan::int64;

// A query tile. A head slot is a query head or, where heads are packed, a key head with all its
// query heads; a tile's rows count (query row, head of the slot) pairs, the head fastest.
struct BlockWork {
  WorkItem item{};
  int slot = -1;  // none: there is no more work
  int first_row = 0;
  int short_row = -1;  // first row of the unit's second tile, if that is yet to come
  int round = 0;

  PARAPET_HOST_DEVICE constexpr bool exists() const { return slot >= 0; }
};
static_assert(sizeof(BlockWork) == 48);

// What the kernel is compiled for, of which the work list was cut.
struct BlockShape {
  int query_tile;
  int heads_per_tile;
  bool paired;  // two tiles a unit
};

// The unit that block `block` of `blocks` works on in a round.
PARAPET_HOST_DEVICE constexpr int unit_of_round(int round, int block, int blocks) {
  return round * blocks + (round % 2 == 0 ? block : blocks - 1 - block);
}

// The first rows of the tiles of unit `unit` of a segment with so many rows.
struct UnitRows {
  int first_row;
  int short_row;
};

PARAPET_HOST_DEVICE constexpr UnitRows rows_of_unit(int unit, int rows, const BlockShape& shape) {
  const int last_tile = (rows - 1) / shape.query_tile;
  const int tile = last_tile - unit;
  return {tile * shape.query_tile, shape.paired && unit < tile ? unit * shape.query_tile : -1};
}

DEVICE WorkItem load_item(const WorkItem* from) {
  struct Units {
    arch::Unit unit[2];
  } units;
  UNROLL
  for (int i = 0; i < 2; ++i)
    units.unit[i] = arch::load_global_unit(reinterpret_cast<const arch::Unit*>(from) + i);
  return __builtin_bit_cast(WorkItem, units);
}

DEVICE BlockWork work_of_round(const ForwardParams& params, const BlockShape& shape, int round) {
  const int index = unit_of_round(round, arch::opaque(static_cast<int>(arch::block_index())),
                                  static_cast<int>(arch::block_count()));
  const int slots = arch::opaque(shape.heads_per_tile == 1 ? params.num_heads : params.num_heads_k);
  BlockWork work;
  work.round = round;
  const bool is_listed = arch::opaque(params.work_items) != nullptr;
  if (is_listed) {
    const int unit = index / slots;
    if (unit >= static_cast<int>(arch::load_global_u32(params.work_count))) return work;
    work.item = load_item(params.work_items + unit);
  } else {
    work.item.query_rows = work.item.query_used = params.rows_q;
    work.item.key_rows = params.rows_k;
  }
  const int rows = work.item.query_rows * shape.heads_per_tile;
  const int unit_rows = shape.query_tile * (shape.paired ? 2 : 1);
  const int units = (rows + unit_rows - 1) / unit_rows;
  if (!is_listed) {
    work.item.segment = index / plan::max(units * slots, 1);
    if (work.item.segment >= params.batch || units == 0) return work;
    work.item.first_unit = work.item.segment * units;
  }
  const int in_segment = index - work.item.first_unit * slots;
  const UnitRows first = rows_of_unit(in_segment % units, rows, shape);
  work.slot = in_segment / units;
  work.first_row = first.first_row;
  work.short_row = first.short_row;
  return work;
}

DEVICE BlockWork next_work(const ForwardParams& params, const BlockShape& shape,
                           const BlockWork& work) {
  if (work.short_row < 0) return work_of_round(params, shape, work.round + 1);
  BlockWork next = work;
  next.first_row = work.short_row;
  next.short_row = -1;
  return next;
}

// Work in shared memory.
struct BlockWorkUnits {
  arch::Unit unit[sizeof(BlockWork) / sizeof(arch::Unit)];
};

DEVICE void store_work(u32 to, const BlockWork& work) {
  const auto units = __builtin_bit_cast(BlockWorkUnits, work);
  UNROLL
  for (int i = 0; i < 3; ++i) arch::store_shared_unit(to + i * 16, units.unit[i]);
}

DEVICE BlockWork load_work(u32 from) {
  BlockWorkUnits units;
  UNROLL
  for (int i = 0; i < 3; ++i) units.unit[i] = arch::load_shared_unit(from + i * 16);
  return __builtin_bit_cast(BlockWork, units);
}

}  // namespace parapet::kernels
