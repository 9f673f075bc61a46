#pragma once

#include "kernels/core/params.h"
#include "kernels/core/shared_tile.h"
#include "kernels/mma/notes.h"

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

  static constexpr int kPassThreads = threads_per_row(kConfig);
  static constexpr int kPassRows = T::kThreads / kPassThreads;
  static constexpr int kRowPasses = kChunk / kPassRows;
  static constexpr int kKeyLines = T::lines(kConfig.head_dim, kPassThreads);
  static constexpr int kValueLines = T::lines(kConfig.head_dim_v, kPassThreads);
  static constexpr int kKeyCopies = kRowPasses * kKeyLines;
  static constexpr int kCopies = kKeyCopies + kRowPasses * kValueLines;  // for each chunk
  static_assert(kStages - stages_ahead(kConfig) >= 2);
  static_assert(kPassRows % 16 == 0 && kChunk % kPassRows == 0);
  static_assert(T::kKeyTile % kChunk == 0);

  // The stage of the tile in use, where it lies, and the parity of its barriers' phase.
  struct Cursor {
    int stage = 0;
    u32 offset = 0;
    int parity = 0;

    DEVICE Cursor next() const {
      if (stage == kStages - 1) return {0, 0, parity ^ 1};
      return {stage + 1, offset + T::kStageBytes, parity};
    }
  };

  const ForwardParams& params;
  u32 barriers;  // in shared memory: filled, then drained, of each stage

  // This thread's unit of the last rows that were copied. Stepping on only when the next are due
  // keeps a step from waiting for the copy that reads the registers it writes.
  const char* key = nullptr;
  const char* value = nullptr;
  u32 to_key = 0;
  u32 to_value = 0;
  // Rows that exist from the next chunk's first on, less this thread's row in it.
  int rows_left = 0;
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
    const int before = row - kPassRows;
    key = keys + 2 * (before * params.k_row_stride) + unit * 16;
    value = values + 2 * (before * params.v_row_stride) + unit * 16;
    to_key = base + shared_at<T::kRowBytes>(before, unit);
    to_value = to_key + T::kTileBytes;
    rows_left = rows - row;
  }

  // From the end of a query tile's keys to the next one's: see Notes.
  DEVICE void step(const Notes& notes) {
    key += static_cast<long long>(arch::load_shared_u64(notes.key_step()));
    value += static_cast<long long>(arch::load_shared_u64(notes.value_step()));
    rows_left += static_cast<int>(arch::load_shared(notes.row_step()));
  }

  // Copy `i` of the kCopies that go with a chunk: keys, then values.
  DEVICE void copy(int i) {
    const bool is_key = i < kKeyCopies;
    const int j = is_key ? i : i - kKeyCopies;
    const int lines = is_key ? kKeyLines : kValueLines;
    const int line = j % lines;
    const int row = j / lines * kPassRows;
    u32& to = is_key ? to_key : to_value;
    const char*& from = is_key ? key : value;
    if (line == 0) {
      to += kPassRows * T::kRowBytes;
      from += (is_key ? params.k_row_stride : params.v_row_stride) * (2 * kPassRows);
    }
    copy_unit<kConfig.aligned>(
        to + line * kPassThreads * 16, from + line * kPassThreads * 16,
        rows_left > row && in_row(is_key ? kConfig.head_dim : kConfig.head_dim_v, line));
    if (i == kCopies - 1) rows_left -= kChunk;
  }

  // The copies due at `step` of the kSteps of a chunk's arithmetic. Where exactly was measured: it
  // moves ptxas's schedule by up to 5 %.
  template <int kSteps>
  DEVICE void copies_at(int step) {
    UNROLL
    for (int i = 0; i < kCopies; ++i) {
      const int due = i == 0 ? kConfig.shape.first_copy : kConfig.shape.other_copies;
      if (step == plan::min(due, kSteps - 1)) copy(i);
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

  // Fills the first stages before any is in use.
  DEVICE void fill_ahead(int stages) {
    NO_UNROLL
    for (int i = 0; i < stages; ++i) {
      copy_tile();
      end_tile();
    }
  }

  // After the last copy of a tile: its stage will be filled. Goes on to the next stage.
  DEVICE int next_stage() const { return stage == kStages - 1 ? 0 : stage + 1; }

  DEVICE void end_tile() {
    arrive_after_copies<kConfig.aligned>(filled(stage));
    const bool wraps = stage == kStages - 1;
    stage = next_stage();
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
