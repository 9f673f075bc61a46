#pragma once

#include "kernels/arch/math.h"
#include "kernels/arch/memory.h"
#include "kernels/mma/traits.h"

// Elements of the tensors' type.

namespace parapet::kernels {

using arch::u32;

template <Element kElement>
DEVICE float load_element(const char* row, int column) {
  const arch::u16 bits = arch::load_global_u16(row + 2 * column);
  return kElement == Element::kBfloat16 ? arch::from_bfloat16(bits) : arch::from_float16(bits);
}

// Two neighbouring elements in one register.
template <Element kElement>
DEVICE u32 pack(float low, float high) {
  if constexpr (kElement == Element::kBfloat16)
    return arch::pack_bfloat16(low, high);
  else
    return arch::pack_float16(low, high);
}

// Not zero if one of two elements is infinite or NaN: an exponent of all ones carries into the
// sign.
template <Element kElement>
DEVICE u32 not_finite_bits(u32 two) {
  constexpr bool kBfloat16 = kElement == Element::kBfloat16;
  constexpr u32 kExponents = kBfloat16 ? 0x7f807f80 : 0x7c007c00;
  constexpr u32 kLowest = kBfloat16 ? 0x00800080 : 0x04000400;
  return ((two & kExponents) + kLowest) & 0x80008000;
}

}  // namespace parapet::kernels
