#pragma once

#include "kernels/arch/math.h"
#include "kernels/arch/thread.h"

// The online softmax of one row, in powers of two. A row's exponents are relative to a reference
// that need not be the row's largest score: it moves only when an exponent grows past kMaxGrowth,
// so that most steps neither compare across lanes nor rescale. The final division undoes the
// difference. `neg_reference` is minus the reference.

namespace parapet::kernels {

inline constexpr float kMaxGrowth = 8.0f;  // weights up to 2^8, exact in either element type
inline constexpr float kLog2E = 1.44269504088896341f;
inline constexpr float kLn2 = 0.693147180559945309f;

// The reference of a row that has seen no key: negative zero, which no reference that was set has.
inline constexpr float kNoReference = -0.0f;

DEVICE bool has_reference(float neg_reference) {
  return __builtin_bit_cast(arch::u32, neg_reference) !=
         __builtin_bit_cast(arch::u32, kNoReference);
}

// Lanes 4 i ... 4 i + 3 of a warp share a row.
DEVICE float row_max(float x) {
  x = arch::max(x, arch::shuffle_xor(x, 1));
  return arch::max(x, arch::shuffle_xor(x, 2));
}

DEVICE float row_sum(float x) {
  x += arch::shuffle_xor(x, 1);
  return x + arch::shuffle_xor(x, 2);
}

// What a chunk whose largest exponent is `top` does to a row: the reference rises by `rise`, what
// was summed before shrinks by `factor`. Nothing happens while the row sees no key.
struct Raise {
  float neg_reference;
  float rise;
  float factor;
};

DEVICE Raise raise_reference(float neg_reference, float top) {
  const bool sees = top != -arch::kInfinity;
  const float rise = !sees ? 0.0f : has_reference(neg_reference) ? arch::max(top, 0.0f) : top;
  const float raised = neg_reference - rise + 0.0f;
  return {sees ? raised : neg_reference, rise, arch::exp2_approx(arch::min(-rise, 0.0f))};
}

// c tanh(x): exact to rounding, where the hardware's own tanh has 11 bits.
DEVICE float soft_cap(float x, float cap) {
  const float e = arch::exp2_approx(x * (2.0f * kLog2E));
  return cap - 2.0f * cap * arch::reciprocal_approx(e + 1.0f);
}

// What a finished row multiplies its output by, and its log-sum-exp.
struct RowResult {
  float factor;
  float lse;
};

// `sink` is an extra logit without a value, in powers of two; -infinity for none.
DEVICE RowResult finish_row(float sum, float neg_reference, float sink) {
  const float reference = has_reference(neg_reference) ? -neg_reference : -arch::kInfinity;
  const float top = arch::max(reference, sink);
  if (top == -arch::kInfinity) return {0.0f, -arch::kInfinity};
  const float factor = arch::exp2_approx(reference - top);
  const float total = sum * factor + arch::exp2_approx(sink - top);
  return {factor * arch::reciprocal_approx(total), (top + arch::log2_approx(total)) * kLn2};
}

}  // namespace parapet::kernels
