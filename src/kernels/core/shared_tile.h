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

// Unit `unit` of row `row`. Within each 128-byte line of a row units are permuted by the row, so that
// eight consecutive aligned rows of one unit, what a matrix load reads at a time, cover all banks.
template <int kRowBytes>
DEVICE u32 shared_at(int row, int unit) {
  const int permuted = unit ^ (row & 7) ^ ((row >> 3) & 1);
  return static_cast<u32>(row * kRowBytes + permuted * 16);
}

// Keys are stored with bit 3 of the key and bit 0 of the unit exchanged. The lane mapping that reads
// values and queries then yields both halves of a matrix operand in consecutive registers, so that
// one set of lane offsets serves all three.
template <int kRowBytes>
DEVICE u32 shared_key_at(int key, int unit) {
  return shared_at<kRowBytes>((key & ~8) | (unit & 1) << 3, (unit & ~1) | ((key >> 3) & 1));
}

// Eight elements from any 2-byte aligned address.
DEVICE arch::Unit load_unaligned_unit(const char* from) {
  arch::Unit unit;
  UNROLL
  for (int i = 0; i < 4; ++i)
    unit.word[i] = arch::load_global_u16(from + 4 * i) | arch::load_global_u16(from + 4 * i + 2) << 16;
  return unit;
}

DEVICE void store_unaligned_unit(char* to, arch::Unit unit) {
  UNROLL
  for (int i = 0; i < 4; ++i) {
    arch::store_global_u16(to + 4 * i, static_cast<arch::u16>(unit.word[i]));
    arch::store_global_u16(to + 4 * i + 2, static_cast<arch::u16>(unit.word[i] >> 16));
  }
}

// One unit to shared memory; zeros, and no read, when !valid. Aligned units are copied asynchronously.
template <bool kAligned>
DEVICE void copy_unit(u32 to, const char* from, bool valid) {
  if constexpr (kAligned) {
    arch::copy_unit_async(to, from, valid);
  } else {
    arch::Unit unit{};
    if (valid) unit = load_unaligned_unit(from);
    arch::store_shared_unit(to, unit);
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
