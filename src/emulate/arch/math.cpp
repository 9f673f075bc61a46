#include "kernels/arch/math.h"

#include <cmath>

namespace parapet::kernels::arch {
namespace {

// .ftz: numbers below the smallest normal one count as zero.
float flush(float x) {
  return std::fabs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x;
}

u32 bits_of(float x) {
  return __builtin_bit_cast(u32, x);
}

// The value's bits shifted right, to nearest, ties to even.
u32 shift_rounded(u32 value, int shift) {
  const u32 half = (1u << (shift - 1)) - 1;
  return (value + half + ((value >> shift) & 1)) >> shift;
}

u16 to_bfloat16(float x) {
  return std::isnan(x) ? u16{0x7fff} : static_cast<u16>(shift_rounded(bits_of(x), 16));
}

u16 to_float16(float x) {
  if (std::isnan(x)) return 0x7fff;
  const u32 sign = bits_of(x) >> 16 & 0x8000;
  const float magnitude = std::fabs(x);
  u32 bits = 0;
  if (magnitude >= 0x1p16f) {
    bits = 0x7c00;
  } else if (magnitude < 0x1p-14f) {
    bits = static_cast<u32>(std::nearbyint(magnitude * 0x1p24f));  // of the smallest step
  } else {
    constexpr u32 kExponents = (127 - 15) << 23;
    bits = shift_rounded(bits_of(magnitude) - kExponents, 13);  // may carry to infinity
  }
  return static_cast<u16>(sign | bits);
}

}  // namespace

float exp2_approx(float x) {
  return flush(std::exp2(flush(x)));
}
float log2_approx(float x) {
  return flush(std::log2(flush(x)));
}
float reciprocal_approx(float x) {
  return flush(1.0f / flush(x));
}
float multiply_add(float a, float b, float c) {
  return std::fma(a, b, c);
}
// The other operand where one is NaN, a signalling one too, of which std::fmax makes NaN. +0 counts
// as more than -0.
float max(float a, float b) {
  if (std::isnan(a)) return b;
  if (std::isnan(b)) return a;
  if (a == b) return std::signbit(a) ? b : a;
  return a < b ? b : a;
}
float min(float a, float b) {
  if (std::isnan(a)) return b;
  if (std::isnan(b)) return a;
  if (a == b) return std::signbit(a) ? a : b;
  return b < a ? b : a;
}

u32 pack_bfloat16(float low, float high) {
  return to_bfloat16(low) | static_cast<u32>(to_bfloat16(high)) << 16;
}
u32 pack_float16(float low, float high) {
  return to_float16(low) | static_cast<u32>(to_float16(high)) << 16;
}

float from_float16(u16 bits) {
  const u32 sign = static_cast<u32>(bits & 0x8000) << 16;
  const u32 exponent = bits >> 10 & 0x1f;
  const u32 fraction = bits & 0x3ff;
  float magnitude = 0.0f;
  if (exponent == 0)
    magnitude = static_cast<float>(fraction) * 0x1p-24f;
  else if (exponent == 0x1f)
    magnitude = __builtin_bit_cast(float, 0x7f800000 | fraction << 13);
  else
    magnitude = __builtin_bit_cast(float, (exponent + 127 - 15) << 23 | fraction << 13);
  return __builtin_bit_cast(float, bits_of(magnitude) | sign);
}
float from_bfloat16(u16 bits) {
  return __builtin_bit_cast(float, static_cast<u32>(bits) << 16);
}

}  // namespace parapet::kernels::arch
