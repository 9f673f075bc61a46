#pragma once

#include "cpu/head.h"

// Memory of the kernels, in floats. Sizes are bounds over all targets.

namespace parapet::cpu {

// Bounds over all targets, for the sizes of memory.
inline constexpr int64 kMaxLanes = 16;
inline constexpr int64 kMaxGroup = 8;
inline constexpr int64 kMaxPanelRows = 48;

// Keys and values of a head in the order of the kernels, as floats.
struct Packed {
  Packed(const api::Problem& problem, Range packed_keys, float* memory);
  static int64 floats(const api::Problem& problem, int64 keys);

  Range keys;
  float* k;
  float* v;
  float* v_check;  // of each tile: 0 when all its values are finite, else NaN
};

// What the keys seen so far make of rows, consecutive ones `stride` floats apart: the sum of
// values, unscaled, and behind it the reference and the sum of weights.
struct RowSums {
  static int64 stride(const api::Problem& problem);

  RowSums from(int64 row) const { return {values(row), row_stride}; }
  float* values(int64 row) const { return memory + row * row_stride; }
  float& reference(int64 row) const { return memory[row * row_stride + row_stride - 2]; }
  float& sum(int64 row) const { return memory[row * row_stride + row_stride - 1]; }

  float* memory = nullptr;
  int64 row_stride = 0;
};

// Scratch of one thread.
int64 panels_scratch_floats(const api::Problem& problem);
int64 few_rows_scratch_floats(const api::Problem& problem, int64 rows, int64 heads);

}  // namespace parapet::cpu
