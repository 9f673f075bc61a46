#pragma once

#include "plan/host_device.h"

// What distinguishes one compiled forward kernel from another, and what the host must know to
// launch it. Host and device read the same constants, so neither repeats the other.

namespace parapet::kernels {

enum class Element : int { kBfloat16, kFloat16 };

// How a block divides its work. `warps` warps own row_tiles * 16 query rows each. Keys and values
// come in tiles of key_tile keys through a ring of `stages` tiles and are worked on `chunk` keys at
// a time. pipelined: the scores of a chunk are computed beside the exponentials of the one before.
struct ForwardShape {
  int warps;
  int row_tiles;
  int key_tile;
  int chunk;
  int stages;
  bool pipelined;
  int blocks_per_sm = 1;

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
inline constexpr int kSharedBytesPerSm = 100 * 1024;  // what every GPU from sm_86 on has
inline constexpr int kMaxSharedBytes = kSharedBytesPerSm - kReservedSharedBytes;

PARAPET_HOST_DEVICE constexpr bool supports_head_dim(int head_dim) {
  return head_dim > 0 && head_dim <= kMaxHeadDim && head_dim % kHeadDimStep == 0;
}

PARAPET_HOST_DEVICE constexpr int forward_threads(const ForwardConfig& config) {
  return config.shape.warps * 32;
}

// Query rows a block works on; with packed heads a query row counts once for each head.
PARAPET_HOST_DEVICE constexpr int forward_query_tile(const ForwardConfig& config) {
  return config.shape.warps * config.shape.row_tiles * 16;
}

// A row in shared memory fills whole lines of 128 bytes, 64 elements.
PARAPET_HOST_DEVICE constexpr int shared_row_bytes(const ForwardConfig& config) {
  return static_cast<int>(plan::ceil_div(plan::max(config.head_dim, config.head_dim_v), 64)) * 128;
}

// A stage of the ring: a tile of keys, then a tile of values.
PARAPET_HOST_DEVICE constexpr int stage_bytes(const ForwardConfig& config) {
  return 2 * config.shape.key_tile * shared_row_bytes(config);
}

PARAPET_HOST_DEVICE constexpr int query_bytes(const ForwardConfig& config) {
  return forward_query_tile(config) * shared_row_bytes(config);
}

// Stages ahead of the one in use; the one that is refilled was used two tiles ago, so that warps
// may drift a whole tile apart before one waits.
PARAPET_HOST_DEVICE constexpr int stages_ahead(const ForwardConfig& config) {
  return config.shape.stages - 2;
}

// Beside the ring: what the block works on, a word for each warp, and two barriers a stage and one
// for the queries.
inline constexpr int kWorkBytes = 48;
PARAPET_HOST_DEVICE constexpr int fixed_bytes(const ForwardConfig& config) {
  return kWorkBytes + config.shape.warps * 4 + (2 * config.shape.stages + 1) * 8;
}

// The queries pass through shared memory once, where the ring's later stages will be: this many
// stages before them can be filled at the same time.
PARAPET_HOST_DEVICE constexpr int early_stages(const ForwardConfig& config) {
  const int fit =
      (kMaxSharedBytes - fixed_bytes(config) - query_bytes(config)) / stage_bytes(config);
  return plan::clamp(fit, 0, stages_ahead(config));
}

PARAPET_HOST_DEVICE constexpr int ring_bytes(const ForwardConfig& config) {
  return plan::max(config.shape.stages * stage_bytes(config),
                   early_stages(config) * stage_bytes(config) + query_bytes(config));
}

// Dynamic shared memory of a block.
PARAPET_HOST_DEVICE constexpr int forward_shared_bytes(const ForwardConfig& config) {
  return ring_bytes(config) + fixed_bytes(config);
}

// What a choice of shape depends on beside the configuration.
struct ShapeHints {
  plan::int64 keys = 1 << 20;                   // that a query sees, about
  int shared_bytes_per_sm = kSharedBytesPerSm;  // of the GPU
};

// The fastest shape measured, among those that need no local memory. `config.shape` is not read.
PARAPET_HOST_DEVICE constexpr ForwardShape forward_shape(ForwardConfig config,
                                                         ShapeHints hints = {}) {
  const int wider = plan::max(config.head_dim, config.head_dim_v);

  // 16 rows a warp leave registers for what is needed less often.
  if (wider > 192) return {8, 1, 16, 16, 6, false};
  if (wider > 128) return {8, 1, 32, 32, 4, false};
  if (wider > 64 && (config.packed_heads || !config.aligned)) return {8, 1, 32, 32, 4, false};

  // Two small blocks hide each other's beginning and end, which is much of a short segment's time,
  // and waste less of a mask's edge.
  const bool masked = config.left_edge || config.right_edge;
  const bool is_short = wider > 64 ? masked && hints.keys <= 1024 : hints.keys <= 2048;
  config.shape = wider > 64 ? ForwardShape{4, 2, 16, 16, 6, false, 2}
                 : masked   ? ForwardShape{4, 2, 32, 32, 6, false, 2}
                            : ForwardShape{4, 2, 48, 48, 6, false, 2};
  const int bytes = 2 * (forward_shared_bytes(config) + kReservedSharedBytes);
  if (is_short && bytes <= hints.shared_bytes_per_sm) return config.shape;
  return wider > 64 ? ForwardShape{8, 2, 32, 16, 4, false} : ForwardShape{8, 2, 64, 32, 4, true};
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

// Entries that the work list needs: every segment can end within a tile, and so can the rows before
// the first segment and after the last.
PARAPET_HOST_DEVICE constexpr plan::int64 work_list_capacity(plan::int64 batch, plan::int64 rows,
                                                             bool packed, int heads_per_tile,
                                                             int query_tile) {
  if (!packed) return batch * plan::ceil_div(rows * heads_per_tile, query_tile);
  return rows * heads_per_tile / query_tile + batch + 2;
}

}  // namespace parapet::kernels
