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

// Unit `unit` of row `row`. Within each 128-byte line of a row units are permuted by the row, so
// that eight consecutive aligned rows of one unit, what a matrix load reads at a time, cover all
// banks.
template <int kRowBytes>
DEVICE u32 shared_at(int row, int unit) {
  const int permuted = unit ^ (row & 7) ^ ((row >> 3) & 1);
  return static_cast<u32>(row * kRowBytes + permuted * 16);
}

// Keys are stored with bit 3 of the key and bit 0 of the unit exchanged. The lane mapping that
// reads values and queries then yields both halves of a matrix operand in consecutive registers, so
// that one set of lane offsets serves all three.
template <int kRowBytes>
DEVICE u32 shared_key_at(int key, int unit) {
  return shared_at<kRowBytes>((key & ~8) | (unit & 1) << 3, (unit & ~1) | ((key >> 3) & 1));
}

// Two elements from any 2-byte aligned address.
DEVICE u32 load_unaligned_pair(const char* from) {
  return arch::load_global_u16(from) | static_cast<u32>(arch::load_global_u16(from + 2)) << 16;
}

DEVICE void store_unaligned_unit(char* to, arch::Unit unit) {
  UNROLL
  for (int i = 0; i < 4; ++i) {
    arch::store_global_u16(to + 4 * i, static_cast<arch::u16>(unit.word[i]));
    arch::store_global_u16(to + 4 * i + 2, static_cast<arch::u16>(unit.word[i] >> 16));
  }
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

template <bool kAligned>
DEVICE void store_unit(char* to, arch::Unit unit) {
  if constexpr (kAligned)
    arch::store_global_unit(to, unit);
  else
    store_unaligned_unit(to, unit);
}

// Arrives at a barrier once this thread's units so far are in shared memory.
template <bool kAligned>
DEVICE void arrive_after_copies(u32 barrier) {
  if constexpr (kAligned)
    arch::barrier_arrive_after_copies(barrier);
  else
    arch::barrier_arrive(barrier);
}

}  // namespace parapet::kernels
