#pragma once

#include "kernels/core/params.h"
#include "kernels/core/shared_tile.h"
#include "kernels/mma/tile.h"

namespace parapet::kernels {

// The ring of key and value tiles in shared memory. Each thread owns one 16-byte unit of every pass
// of kPassRows rows. The copies of one tile are dealt out over the arithmetic of an earlier one: a
// burst of them would wait for its own address registers.
//
// A stage's `filled` barrier completes when all threads' copies have landed, its `drained` barrier
// when all warps have read the tile.
template <ForwardConfig kConfig>
struct Ring {
  using T = Tile<kConfig>;
  static constexpr int kStages = kConfig.shape.stages;
  static constexpr int kChunk = kConfig.shape.chunk;

  static constexpr int kPassThreads =
      T::kThreads / 8 <= kChunk ? 8 : 16;  // threads that share a row
  static constexpr int kPassRows = T::kThreads / kPassThreads;
  static constexpr int kRowPasses = kChunk / kPassRows;
  static constexpr int kKeyLines = T::lines(kConfig.head_dim, kPassThreads);
  static constexpr int kValueLines = T::lines(kConfig.head_dim_v, kPassThreads);
  static constexpr int kKeyCopies = kRowPasses * kKeyLines;
  static constexpr int kCopies = kKeyCopies + kRowPasses * kValueLines;  // for each chunk
  static_assert(kStages >= 4 && kPassRows % 16 == 0 && kChunk % kPassRows == 0);
  static_assert(T::kKeyTile % kChunk == 0 && T::kRowBytes % (kPassThreads * 16) == 0);

  // The stage of the tile in use, and the parity of its barriers' phase.
  struct Cursor {
    int stage = 0;
    int parity = 0;

    DEVICE Cursor next() const {
      const bool wraps = stage == kStages - 1;
      return {wraps ? 0 : stage + 1, parity ^ static_cast<int>(wraps)};
    }
    DEVICE u32 offset() const { return static_cast<u32>(stage * T::kStageBytes); }
  };

  const ForwardParams& params;
  u32 barriers;               // in shared memory: filled, then drained, of each stage
  const char* key = nullptr;  // this thread's unit of the next key and the next value row
  const char* value = nullptr;
  u32 to_key = 0;
  u32 to_value = 0;
  int rows_left = 0;  // rows that exist from the next pass's first on, less this thread's row in it
  int stage = 0;

  DEVICE u32 filled(int of_stage) const { return barriers + of_stage * 8; }
  DEVICE u32 drained(int of_stage) const { return barriers + (kStages + of_stage) * 8; }

  DEVICE void init_barriers() const {
    const int thread = static_cast<int>(arch::thread_index());
    if (thread >= kStages) return;
    arch::barrier_init(filled(thread), T::kThreads);
    arch::barrier_init(drained(thread), kConfig.shape.warps);
  }

  // Starts with the rows that `keys` and `values` point to; those from `rows` on are zeros.
  DEVICE void begin(u32 base, const char* keys, const char* values, int rows) {
    const int unit = static_cast<int>(arch::thread_index() % kPassThreads);
    const int row = static_cast<int>(arch::thread_index() / kPassThreads);
    key = keys + 2 * (row * params.k_row_stride) + unit * 16;
    value = values + 2 * (row * params.v_row_stride) + unit * 16;
    to_key = base + shared_key_at<T::kRowBytes>(row, unit);
    to_value = base + T::kTileBytes + shared_at<T::kRowBytes>(row, unit);
    rows_left = rows - row;
  }

  // Copy `i` of the kCopies that go with a chunk: keys, then values.
  DEVICE void copy(int i) {
    const bool is_key = i < kKeyCopies;
    const int j = is_key ? i : i - kKeyCopies;
    const int lines = is_key ? kKeyLines : kValueLines;
    const int line = j % lines;
    const int row = j / lines * kPassRows;
    const u32 to = (is_key ? to_key : to_value) + row * T::kRowBytes + line * kPassThreads * 16;
    const char*& from = is_key ? key : value;
    const int head_dim = is_key ? kConfig.head_dim : kConfig.head_dim_v;
    copy_unit<kConfig.aligned>(to, from + line * kPassThreads * 16,
                               rows_left > row && in_row(head_dim, line));
    if (line == lines - 1)
      from += (is_key ? params.k_row_stride : params.v_row_stride) * (2 * kPassRows);
    if (i == kCopies - 1) {
      to_key += kChunk * T::kRowBytes;
      to_value += kChunk * T::kRowBytes;
      rows_left -= kChunk;
    }
  }

  // The copies due at `step` of the kSteps of a chunk's P V. Where exactly was measured: it moves
  // ptxas's schedule by up to 5 %.
  template <int kSteps>
  DEVICE void copies_at(int step) {
    UNROLL
    for (int i = 0; i < kCopies; ++i) {
      const int due =
          T::kPipelined ? plan::min(kSteps / 2 + i, kSteps - 1) : (i + 1) * kSteps / (kCopies + 1);
      if (step == due) copy(i);
    }
  }

  DEVICE void copy_chunk() {
    UNROLL
    for (int i = 0; i < kCopies; ++i) copy(i);
  }

  DEVICE void copy_tile() {
    NO_UNROLL
    for (int chunk = 0; chunk < T::kChunks; ++chunk) copy_chunk();
  }

  // Fills the stages [first, end) before any is in use.
  DEVICE void fill_ahead(int first, int end) {
    NO_UNROLL
    for (int i = first; i < end; ++i) {
      copy_tile();
      end_tile();
    }
  }

  // After the last copy of a tile: its stage will be filled. Goes on to the next stage.
  DEVICE void end_tile() {
    arrive_after_copies<kConfig.aligned>(filled(stage));
    const bool wraps = stage == kStages - 1;
    stage = wraps ? 0 : stage + 1;
    const int step = (wraps ? -(kStages - 1) * T::kStageBytes : T::kStageBytes) - T::kTileBytes;
    to_key += step;
    to_value += step;
  }

 private:
  // Columns past the head dim are filled with zeros.
  static DEVICE bool in_row(int head_dim, int line) {
    if (head_dim / kUnitElements >= (line + 1) * kPassThreads) return true;
    const int unit = static_cast<int>(arch::thread_index() % kPassThreads);
    return unit + line * kPassThreads < head_dim / kUnitElements;
  }
};

}  // namespace parapet::kernels
