#pragma once

#include "kernels/arch/memory.h"
#include "kernels/arch/thread.h"
#include "kernels/core/params.h"
#include "plan/host_device.h"

// Which query tile of which head a block works on.

namespace parapet::kernels {

using arch::u32;
using plan::int64;

// A head slot is a query head or, where heads are packed, a key head with all its query heads. A
// tile's rows count (query row, head of the slot) pairs, the head fastest.
struct BlockWork {
  WorkItem item{};
  int slot = 0;
  int first_row = 0;
  int exists = false;
  int reserved = 0;
};
static_assert(sizeof(BlockWork) == 48);

// Of a segment's tiles * slots blocks, the place of block `index`. Slots go in groups of `group`:
// in a group tiles come last row first, which under a causal mask means longest first, each for all
// slots.
struct TilePlace {
  int64 slot;
  int64 tile;
};

PARAPET_HOST_DEVICE constexpr TilePlace place_tile(int64 index, int64 tiles, int64 slots,
                                                   int64 group) {
  if (group == 1) return {index / tiles, tiles - 1 - index % tiles};
  const int64 first_slot = index / (tiles * group) * group;
  const int64 width = plan::min(group, slots - first_slot);
  const int64 rest = index - first_slot * tiles;
  return {first_slot + rest % width, tiles - 1 - rest / width};
}

// Heads whose keys and values together take about this much run side by side; they should stay in
// the L2 cache.
inline constexpr int64 kGroupBytes = 16 << 20;

PARAPET_HOST_DEVICE constexpr int64 slots_per_group(int64 slots, int64 key_heads, int64 key_rows,
                                                    int64 bytes_per_key) {
  const int64 bytes_per_head = plan::max(key_rows * bytes_per_key, int64{1});
  const int64 groups_of_heads = plan::max(kGroupBytes / bytes_per_head, int64{1});
  return plan::min(groups_of_heads * (slots / key_heads), slots);
}

struct WorkItemUnits {
  arch::Unit unit[sizeof(WorkItem) / sizeof(arch::Unit)];
};
struct BlockWorkUnits {
  arch::Unit unit[sizeof(BlockWork) / sizeof(arch::Unit)];
};

DEVICE WorkItem load_item(const WorkItem* from) {
  WorkItemUnits units;
  UNROLL
  for (int i = 0; i < 2; ++i)
    units.unit[i] = arch::load_global_unit(reinterpret_cast<const arch::Unit*>(from) + i);
  return __builtin_bit_cast(WorkItem, units);
}

// A block's work in shared memory.
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

// What the kernel is compiled for, of which the work list was cut.
struct BlockShape {
  int query_tile;
  int heads_per_tile;
  int bytes_per_key;   // of one head's key and value
  bool longest_first;  // rows differ in how many keys they see
};

DEVICE BlockWork find_block_work(const ForwardParams& params, const BlockShape& shape) {
  const int64 block = params.first_block + arch::block_index();
  const int64 slots = shape.heads_per_tile == 1 ? params.num_heads : params.num_heads_k;
  const auto tiles_of = [&](const WorkItem& item) {
    return plan::ceil_div(int64{item.query_rows} * shape.heads_per_tile, shape.query_tile);
  };

  BlockWork work;
  if (params.work_items != nullptr) {
    const int64 tile = block / slots;
    if (tile >= static_cast<int>(arch::load_global_u32(params.work_count))) return work;
    work.item = load_item(params.work_items + tile);
  } else {
    work.item.query_rows = work.item.query_used = params.rows_q;
    work.item.key_rows = params.rows_k;
    const int64 tiles = tiles_of(work.item);
    const int64 segment = block / plan::max(tiles * slots, int64{1});
    if (segment >= params.batch || tiles == 0) return work;
    work.item.segment = static_cast<int>(segment);
    work.item.first_tile = static_cast<int>(segment * tiles);
  }

  const int64 group = shape.longest_first ? slots_per_group(slots, params.num_heads_k,
                                                            work.item.key_rows, shape.bytes_per_key)
                                          : 1;
  const TilePlace place =
      place_tile(block - work.item.first_tile * slots, tiles_of(work.item), slots, group);
  work.exists = true;
  work.slot = static_cast<int>(place.slot);
  work.first_row = static_cast<int>(place.tile) * shape.query_tile;
  return work;
}

}  // namespace parapet::kernels
