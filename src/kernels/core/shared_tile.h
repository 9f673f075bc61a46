#pragma once

#include "kernels/arch/barrier.h"
#include "kernels/arch/memory.h"
#include "kernels/arch/thread.h"

// Tiles of 16-bit elements in shared memory: how they are laid out, and how 16-byte units get there
// from rows with any strides.

namespace parapet::kernels {

using arch::u32;
using arch::u64;

inline constexpr int kUnitElements = 8;

// Unit `unit` of row `row`. Rows are an odd number of units apart, so that eight rows' units of one
// column, what a matrix load reads at a time, cover all banks.
template <int kRowBytes>
DEVICE u32 shared_at(int row, int unit) {
  static_assert(kRowBytes % 32 == 16);
  return static_cast<u32>(row * kRowBytes + unit * 16);
}

// Two elements from any 2-byte aligned address.
DEVICE u32 load_unaligned_pair(const char* from) {
  return arch::load_global_u16(from) | static_cast<u32>(arch::load_global_u16(from + 2)) << 16;
}

// One unit to shared memory; zeros, and no read, when !valid. Aligned units are copied
// asynchronously.
template <bool kAligned>
DEVICE void copy_unit(u32 to, const char* from, bool valid) {
  if constexpr (kAligned) {
    arch::copy_unit_async(to, from, valid);
  } else {
    NO_UNROLL  // registers are short where this is used
    for (int half = 0; half < 16; half += 8) {
      u32 low = 0, high = 0;
      if (valid) {
        low = load_unaligned_pair(from + half);
        high = load_unaligned_pair(from + half + 4);
      }
      arch::store_shared(to + half, low);
      arch::store_shared(to + half + 4, high);
    }
  }
}

// Half a unit of a row in registers; zeros, and no read, when !valid.
template <bool kAligned>
DEVICE arch::HalfUnit load_half_unit(const char* from, bool valid) {
  if constexpr (kAligned) {
    return arch::load_global_half_unit(from, valid);
  } else {
    arch::HalfUnit half{};
    if (valid) half = {load_unaligned_pair(from), load_unaligned_pair(from + 4)};
    return half;
  }
}

template <bool kAligned>
DEVICE void store_half_unit(char* to, arch::HalfUnit half) {
  if constexpr (kAligned) {
    arch::store_global_half_unit(to, half);
  } else {
    UNROLL
    for (int i = 0; i < 2; ++i) {
      arch::store_global_u16(to + 4 * i, static_cast<arch::u16>(half.word[i]));
      arch::store_global_u16(to + 4 * i + 2, static_cast<arch::u16>(half.word[i] >> 16));
    }
  }
}

// Arrives at a barrier once this thread's units so far are in shared memory.
template <bool kAligned>
DEVICE void arrive_after_copies(u32 barrier) {
  if constexpr (kAligned)
    arch::barrier_arrive_after_copies(barrier);
  else
    arch::barrier_arrive(barrier, true);
}

}  // namespace parapet::kernels
