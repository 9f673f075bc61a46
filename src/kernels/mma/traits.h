#pragma once

#include "plan/host_device.h"

// What distinguishes one compiled forward kernel from another, and what the host must know to
// launch it. Host and device read the same constants, so neither repeats the other.

namespace parapet::kernels {

enum class Element : int { kBfloat16, kFloat16 };

// How a block divides its work. `warps` warps own row_tiles * 16 query rows each. Keys and values
// come in tiles of key_tile keys through a ring of `stages` tiles and are worked on `chunk` keys at
// a time. pipelined: the scores of a chunk are computed beside the exponentials of the one before.
//
// The rest moves ptxas's schedule by up to 10 %, and was measured: at which steps of a chunk's
// arithmetic its copies are issued (of the scores or, where pipelined, of P V), and how many pairs
// of weights are packed only behind the branch that ends the exponentials.
struct ForwardShape {
  int warps;
  int row_tiles;
  int key_tile;
  int chunk;
  int stages;
  bool pipelined = false;
  int blocks_per_sm = 1;
  int first_copy = 1;
  int other_copies = 5;
  int late_pairs = 1;

  PARAPET_HOST_DEVICE friend constexpr bool operator==(const ForwardShape&,
                                                       const ForwardShape&) = default;
};

// A kernel's key: everything that is compiled in.
struct ForwardConfig {
  Element element = Element::kBfloat16;
  int head_dim = 128;
  int head_dim_v = 128;
  bool left_edge = false;   // a window hides keys on the left of some rows
  bool right_edge = false;  // causal, or a window hides keys on the right
  bool softcap = false;
  bool packed_heads = false;  // the query heads of a key head share a block: rows are (row, head)
  bool aligned = true;        // q, k, v, out: addresses and strides are multiples of 16 bytes
  ForwardShape shape{};

  PARAPET_HOST_DEVICE friend constexpr bool operator==(const ForwardConfig&,
                                                       const ForwardConfig&) = default;
};

inline constexpr int kHeadDimStep = 8;
inline constexpr int kMaxHeadDim = 256;
inline constexpr int kReservedSharedBytes = 1024;     // of an SM's shared memory, for each block
inline constexpr int kSharedBytesPerSm = 100 * 1024;  // what every GPU from sm_80 on has
inline constexpr int kRoomySharedBytesPerSm = 228 * 1024;

PARAPET_HOST_DEVICE constexpr bool supports_head_dim(int head_dim) {
  return head_dim > 0 && head_dim <= kMaxHeadDim && head_dim % kHeadDimStep == 0;
}

PARAPET_HOST_DEVICE constexpr int forward_threads(const ForwardConfig& config) {
  return config.shape.warps * 32;
}

// Query rows a block works on at a time; with packed heads a query row counts once for each head.
PARAPET_HOST_DEVICE constexpr int forward_query_tile(const ForwardConfig& config) {
  return config.shape.warps * config.shape.row_tiles * 16;
}

// Whether a unit of work is a long and a short tile: one end of the rows sees fewer keys.
PARAPET_HOST_DEVICE constexpr bool pairs_tiles(const ForwardConfig& config) {
  return config.left_edge != config.right_edge;
}

PARAPET_HOST_DEVICE constexpr int forward_unit_rows(const ForwardConfig& config) {
  return forward_query_tile(config) * (pairs_tiles(config) ? 2 : 1);
}

// So many threads copy a row of keys or values, 16 bytes each at a time: with 8, all threads of the
// block may be more rows than a chunk has.
PARAPET_HOST_DEVICE constexpr int threads_per_row(const ForwardConfig& config) {
  return forward_threads(config) / 8 <= config.shape.chunk ? 8 : 16;
}

// A row in shared memory holds whole such accesses, and 16 bytes that shift the next row to other
// banks (core/shared_tile.h).
PARAPET_HOST_DEVICE constexpr int shared_row_bytes(const ForwardConfig& config) {
  const int access = threads_per_row(config) * 16;
  const int wider = plan::max(config.head_dim, config.head_dim_v);
  return static_cast<int>(plan::round_up(wider * 2, access)) + 16;
}

// A stage of the ring: a tile of keys, then a tile of values.
PARAPET_HOST_DEVICE constexpr int stage_bytes(const ForwardConfig& config) {
  return 2 * config.shape.key_tile * shared_row_bytes(config);
}

// Stages that are filled ahead of the one in use. The others let warps drift apart before one has
// to wait.
PARAPET_HOST_DEVICE constexpr int stages_ahead(const ForwardConfig& config) {
  return (config.shape.stages + 1) / 2;
}

PARAPET_HOST_DEVICE constexpr int ring_bytes(const ForwardConfig& config) {
  return config.shape.stages * stage_bytes(config);
}

// Beside the ring each warp keeps what it would need registers for (mma/notes.h), and each stage
// has two barriers.
inline constexpr int kNotesBytes = 2 * 48 + 32;

// Dynamic shared memory of a block.
PARAPET_HOST_DEVICE constexpr int forward_shared_bytes(const ForwardConfig& config) {
  return ring_bytes(config) + config.shape.warps * kNotesBytes + 2 * config.shape.stages * 8;
}

// What a choice of shape depends on beside the configuration.
struct ShapeHints {
  plan::int64 keys = 1 << 20;                   // that a query sees, about
  int shared_bytes_per_sm = kSharedBytesPerSm;  // of the GPU
};

PARAPET_HOST_DEVICE constexpr bool fits(ForwardConfig config, const ForwardShape& shape,
                                        int shared_bytes_per_sm) {
  config.shape = shape;
  return shape.blocks_per_sm * (forward_shared_bytes(config) + kReservedSharedBytes) <=
         shared_bytes_per_sm;
}

// The fastest shape measured, among those that need no local memory. `config.shape` is not read.
PARAPET_HOST_DEVICE constexpr ForwardShape forward_shape(const ForwardConfig& config,
                                                         const ShapeHints& hints = {}) {
  const int wider = plan::max(config.head_dim, config.head_dim_v);
  const bool masked = config.left_edge || config.right_edge;
  const bool roomy = hints.shared_bytes_per_sm >= kRoomySharedBytesPerSm;

  // 16 rows a warp leave registers for wide rows, for what is needed less often, and for GPUs
  // before sm_90, which keep less in uniform registers.
  if (wider > 128 || (wider > 64 && (config.packed_heads || !config.aligned || !roomy))) {
    ForwardShape shape{.warps = 8, .row_tiles = 1, .key_tile = 32, .chunk = 32, .stages = 5};
    shape.first_copy = shape.other_copies = 2;
    shape.late_pairs = 4;
    if (roomy) shape.stages = 6;
    if (fits(config, shape, roomy ? kRoomySharedBytesPerSm : kSharedBytesPerSm)) return shape;
    shape.key_tile = shape.chunk = 16;
    shape.late_pairs = 1;
    return shape;
  }

  // Two small blocks waste less of a mask's edge.
  if (masked && hints.keys <= 1024) {
    ForwardShape shape{.warps = 4, .row_tiles = 2, .key_tile = 32, .chunk = 16, .stages = 5};
    shape.blocks_per_sm = 2;
    if (wider <= 64) {
      shape.chunk = 32;
      shape.other_copies = 2;
      shape.late_pairs = 2;
    }
    return shape;
  }
  if (wider > 64) {
    ForwardShape shape{.warps = 8, .row_tiles = 2, .key_tile = 64, .chunk = 16, .stages = 5};
    if (masked)
      shape.late_pairs = 2;
    else
      shape.other_copies = 4;
    return shape;
  }
  ForwardShape shape{.warps = 8, .row_tiles = 2, .key_tile = 64, .chunk = 32, .stages = 5};
  if (hints.keys <= 1024) {
    if (roomy) shape.stages = 6;
    shape.first_copy = 2;
    return shape;
  }
  shape.pipelined = true;
  shape.first_copy = 6;
  shape.other_copies = 7;
  if (roomy && masked) shape.stages = 8;
  if (roomy && !masked) shape.key_tile = 128;
  return shape;
}

// Whether the query heads of a key head should share a block: short segments fill its rows that
// way.
PARAPET_HOST_DEVICE constexpr bool packing_heads_pays(int num_heads, int num_heads_k,
                                                      plan::int64 rows_q, int query_tile) {
  return num_heads > num_heads_k && rows_q * 2 <= query_tile;
}

// The kernel that makes the work list (core/work_list.h): one block.
inline constexpr int kWorkListThreads = 1024;
inline constexpr int kWorkListBuckets = 256;
inline constexpr int kWorkListSharedBytes = 16 + (kWorkListThreads / 32 + kWorkListBuckets) * 4;

// Entries that the work list needs: every segment can end within a unit, and so can the rows before
// the first segment and after the last.
PARAPET_HOST_DEVICE constexpr plan::int64 work_list_capacity(plan::int64 batch, plan::int64 rows,
                                                             bool packed, int heads_per_tile,
                                                             int unit_rows) {
  if (!packed) return batch * plan::ceil_div(rows * heads_per_tile, unit_rows);
  return rows * heads_per_tile / unit_rows + batch + 2;
}

}  // namespace parapet::kernels
