#pragma once

#include "kernels/arch/barrier.h"
#include "kernels/core/shared_tile.h"
#include "kernels/mma/tile.h"

namespace parapet::kernels {

// The ring of key and value tiles in shared memory. Each thread owns one 16-byte unit of every pass of
// kPassRows rows. The copies of one tile are dealt out over the arithmetic of an earlier one: a burst
// of them would wait for its own address registers.
//
// A stage's `filled` barrier completes when all threads' copies have landed, its `drained` barrier when
// all warps have read the tile.
template <ForwardConfig kConfig>
struct Ring {
  using T = Tile<kConfig>;
  static constexpr int kStages = kConfig.shape.stages;
  static constexpr int kChunk = kConfig.shape.chunk;

  // Tiles between the one being filled and the one in use. The stage that is refilled was used two
  // tiles ago, so that warps may drift a whole tile apart before one waits.
  static constexpr int kAhead = kStages - 2;

  static constexpr int kPassThreads = T::kThreads / 8 <= kChunk ? 8 : 16;  // threads that share a row
  static constexpr int kPassRows = T::kThreads / kPassThreads;
  static constexpr int kRowPasses = kChunk / kPassRows;
  static constexpr int kKeyLines = T::units_in_lines(kConfig.head_dim) / kPassThreads;
  static constexpr int kValueLines = T::units_in_lines(kConfig.head_dim_v) / kPassThreads;
  static constexpr int kKeyCopies = kRowPasses * kKeyLines;
  static constexpr int kCopies = kKeyCopies + kRowPasses * kValueLines;  // for each chunk
  static_assert(kStages >= 3 && kPassRows % 16 == 0 && kChunk % kPassRows == 0);
  static_assert(T::kKeyTile % kChunk == 0 && kKeyLines > 0 && kValueLines > 0);

  const char* key;    // this thread's unit of the next key and the next value row
  const char* value;
  u32 to_key;
  u32 to_value;
  int rows_left;  // rows that exist from the next pass's first row on, less this thread's row in it
  int stage;

  // Tiles of the rows [first, end) of both sources, into shared memory at `base`.
  DEVICE void begin(u32 base, const RowSource& keys, const RowSource& values, int first, int end) {
    const int unit = static_cast<int>(arch::thread_index() % kPassThreads);
    const int row = static_cast<int>(arch::thread_index() / kPassThreads);
    key = keys.row(first + row) + unit * 16;
    value = values.row(first + row) + unit * 16;
    to_key = base + shared_key_at<T::kRowBytes>(row, unit);
    to_value = base + T::kTileBytes + shared_at<T::kRowBytes>(row, unit);
    rows_left = end - first - row;
    stage = 0;
  }

  // Copy `i` of the kCopies that go with a chunk: keys, then values.
  DEVICE void copy(int i, const RowSource& keys, const RowSource& values) {
    const bool is_key = i < kKeyCopies;
    const int j = is_key ? i : i - kKeyCopies;
    const int lines = is_key ? kKeyLines : kValueLines;
    const int line = j % lines;
    const int row = j / lines * kPassRows;
    const u32 to = (is_key ? to_key : to_value) + row * T::kRowBytes + line * kPassThreads * 16;
    const char*& from = is_key ? key : value;
    const bool exists = rows_left > row && in_row(is_key ? kConfig.head_dim : kConfig.head_dim_v, line);
    copy_unit<kConfig.aligned>(to, from + line * kPassThreads * 16, exists);
    if (line == lines - 1) from += (is_key ? keys : values).row_stride * kPassRows;
    if (i == kCopies - 1) {
      to_key += kChunk * T::kRowBytes;
      to_value += kChunk * T::kRowBytes;
      rows_left -= kChunk;
    }
  }

  // The copies due at `step` of the `steps` of a chunk's arithmetic: evenly spread, away from its ends.
  template <int kSteps>
  DEVICE void copies_at(int step, const RowSource& keys, const RowSource& values) {
    UNROLL
    for (int i = 0; i < kCopies; ++i)
      if (step == (2 * i + 1) * kSteps / (2 * kCopies)) copy(i, keys, values);
  }

  DEVICE void copy_chunk(const RowSource& keys, const RowSource& values) {
    UNROLL
    for (int i = 0; i < kCopies; ++i) copy(i, keys, values);
  }

  // After the last copy of a tile: its stage will be filled. Goes on to the next stage.
  DEVICE void end_tile(u32 filled_barriers) {
    if constexpr (kConfig.aligned)
      arch::barrier_arrive_after_copies(filled_barriers + stage * 8);
    else
      arch::barrier_arrive(filled_barriers + stage * 8);
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
