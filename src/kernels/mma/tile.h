#pragma once

#include "kernels/core/shared_tile.h"
#include "kernels/mma/traits.h"

namespace parapet::kernels {

// The sizes that follow from a configuration.
template <ForwardConfig kConfig>
struct Tile {
  static constexpr ForwardShape kShape = kConfig.shape;
  static constexpr bool kPipelined = kShape.pipelined;
  static constexpr bool kMasked = kConfig.left_edge || kConfig.right_edge;

  static constexpr int kThreads = forward_threads(kConfig);
  static constexpr int kRowTiles = kShape.row_tiles;  // of 16 rows, for each warp
  static constexpr int kWarpRows = kRowTiles * 16;
  static constexpr int kRows = forward_query_tile(kConfig);

  // Head dims are multiplied 16 columns, a slice, at a time; what is past them is zero.
  static constexpr int kKeySlices = static_cast<int>(plan::ceil_div(kConfig.head_dim, 16));
  static constexpr int kValueSlices = static_cast<int>(plan::ceil_div(kConfig.head_dim_v, 16));

  static constexpr int kKeyTile = kShape.key_tile;
  static constexpr int kChunk = kShape.chunk;
  static constexpr int kChunks = kKeyTile / kChunk;  // in a tile
  static constexpr int kChunkBlocks = kChunk / 8;    // of 8 keys: one score accumulator
  static constexpr int kChunkSlices = kChunk / 16;   // of 16 keys: one step of P V

  // Rows of queries, keys and values are equally long in shared memory, so that one set of lane
  // offsets serves all.
  static constexpr int kRowBytes = shared_row_bytes(kConfig);
  static constexpr int kTileBytes = kKeyTile * kRowBytes;
  static constexpr int kStageBytes = stage_bytes(kConfig);
  static constexpr int kChunkBytes = kChunk * kRowBytes;
  static constexpr int kNotesAt = ring_bytes(kConfig);
  static constexpr int kBarriersAt = kNotesAt + kShape.warps * kNotesBytes;

  // How many accesses cover a row of `head_dim` elements when `threads` threads take a unit each.
  PARAPET_HOST_DEVICE static constexpr int lines(int head_dim, int threads) {
    return static_cast<int>(plan::ceil_div(head_dim, threads * kUnitElements));
  }

  static_assert(supports_head_dim(kConfig.head_dim) && supports_head_dim(kConfig.head_dim_v));
  static_assert(forward_shared_bytes(kConfig) + kReservedSharedBytes <= kRoomySharedBytesPerSm);
  static_assert(kChunk % 16 == 0 && (!kPipelined || kChunks % 2 == 0));
};

}  // namespace parapet::kernels
