#pragma once

#include "kernels/core/block_work.h"
#include "kernels/mma/tile.h"

namespace parapet::kernels {

// A warp's notes in shared memory: what the loop needs so rarely that registers would be a waste.
// No warp reads another's, so that warps need not wait for each other between query tiles.
struct Notes {
  u32 base;

  template <ForwardConfig kConfig>
  static DEVICE Notes of_this_warp() {
    return {arch::shared_memory() + Tile<kConfig>::kNotesAt +
            arch::thread_index_again() / 32 * kNotesBytes};
  }

  DEVICE u32 work() const { return base; }  // the query tile in hand
  DEVICE u32 next_work() const { return base + 48; }

  // From the end of this tile's keys to the next one's: what the ring's pointers move by, and how
  // many more rows are left.
  DEVICE u32 key_step() const { return base + 96; }
  DEVICE u32 value_step() const { return base + 104; }
  DEVICE u32 row_step() const { return base + 112; }

  DEVICE u32 leak() const { return base + 116; }  // whether to run exact_rows
};
static_assert(sizeof(BlockWork) == 48 && kNotesBytes == 128);

}  // namespace parapet::kernels
