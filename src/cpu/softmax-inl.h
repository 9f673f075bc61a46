// The pieces of an online softmax. A row keeps a reference, a number in log2 units near its largest
// score, the sum of its weights 2^(factor score - reference), and the weighted sum of values. Any
// reference gives the same softmax.

#include <hwy/highway.h>

#include <cmath>

#if defined(PARAPET_CPU_SOFTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PARAPET_CPU_SOFTMAX_INL_H_
#undef PARAPET_CPU_SOFTMAX_INL_H_
#else
#define PARAPET_CPU_SOFTMAX_INL_H_
#endif

#include "api/problem.h"
#include "cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace parapet::cpu::HWY_NAMESPACE {

constexpr float kLog2E = 1.44269504088896340736f;
constexpr double kLn2 = 0.69314718055994530942;

// 2^x for x <= 126, with a relative error of about 1.2e-7; 0 below -126.5; NaN for NaN. The integer
// part of x becomes an exponent, the rest, within [-0.5, 0.5], goes through a minimax polynomial.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V power_of_two(D d, V x) {
  const hn::RebindToSigned<D> d_int;
  // Adding it leaves round(x) + 127 in the low bits.
  const V magic = hn::Set(d, 12583039.0f);  // 1.5 * 2^23 + 127
  // Max gives its second operand when one is NaN, and the exponent bits of -127 are those of zero.
  x = hn::Max(hn::Set(d, -127.0f), x);
  const V shifted = hn::Add(x, magic);
  const V f = hn::Sub(x, hn::Sub(shifted, magic));
  V p = hn::MulAdd(f, hn::Set(d, 0.0013276472f), hn::Set(d, 0.00967554133f));
  p = hn::MulAdd(f, p, hn::Set(d, 0.0555071327f));
  p = hn::MulAdd(f, p, hn::Set(d, 0.240221197f));
  p = hn::MulAdd(f, p, hn::Set(d, 0.693146967f));
  p = hn::MulAdd(f, p, hn::Set(d, 1.00000007f));
  // A product, not an addition to the exponent bits, so that NaN stays NaN.
  return hn::Mul(p, hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(d_int, shifted))));
}

// tanh(x) with a relative error below 4e-7 also near 0, as x P(x^2) / Q(x^2) (minimax on [0, 9.02],
// where tanh reaches 1 in float).
HWY_INLINE VF tanh(VF x) {
  x = hn::Min(hn::Set(df, 9.02f), hn::Max(hn::Set(df, -9.02f), x));  // NaN passes
  const VF u = hn::Mul(x, x);
  VF p = hn::MulAdd(u, hn::Set(df, 1.331715153e-8f), hn::Set(df, 2.058216545e-5f));
  p = hn::MulAdd(u, p, hn::Set(df, 0.003493959087f));
  p = hn::MulAdd(u, p, hn::Set(df, 0.1337965643f));
  p = hn::MulAdd(u, p, hn::Set(df, 0.9999999794f));
  VF q = hn::MulAdd(u, hn::Set(df, 7.761251928e-7f), hn::Set(df, 0.0003282965932f));
  q = hn::MulAdd(u, q, hn::Set(df, 0.02587079207f));
  q = hn::MulAdd(u, q, hn::Set(df, 0.4671297182f));
  q = hn::MulAdd(u, q, hn::Set(df, 1.0f));
  return hn::Div(hn::Mul(x, p), q);
}

// How scores are read. They arrive as plain products of queries and keys, and are scaled together
// with the subtraction of the reference, in one rounding; that is more exact than scaling queries
// or scores.
struct Scores {
  explicit Scores(const api::Problem& problem)
      : softcap(problem.softcap),
        sign(problem.softmax_scale < 0.0f ? -1.0f : 1.0f),
        scale(std::fabs(problem.softmax_scale)) {
    // The smallest number for a scale of zero keeps minus infinity, a hidden key, what it is.
    factor = (softcap > 0.0f ? 1.0f : plan::max(scale, std::numeric_limits<float>::min())) * kLog2E;
  }
  bool capped() const { return softcap > 0.0f; }

  float softcap;
  float sign;  // of queries: with it a larger product is a larger score
  float scale;
  float factor;  // from what is exponentiated to log2 units
};

// s -> softcap tanh(scale s / softcap).
HWY_INLINE VF cap(const Scores& scores, VF s) {
  const VF x = hn::Mul(s, hn::Set(df, scores.scale / scores.softcap));
  return hn::Mul(hn::Set(df, scores.softcap), tanh(x));
}

// A reference is set this far above the largest score (in log2) and moves only when a score passes
// it. So it rarely moves after a row's first tile, and what was summed is rarely scaled; and
// weights never exceed 1, so that sums do not overflow before the values themselves nearly do. More
// would lose values near the smallest that there are.
constexpr float kHeadroom = 8.0f;

// Moves the references that `maximum`, in log2 units, passes; returns the factors for what was
// summed.
HWY_INLINE VF move_reference(VF maximum, VF& reference) {
  const auto moves = hn::Gt(maximum, reference);
  const VF moved = hn::IfThenElse(moves, hn::Add(maximum, hn::Set(df, kHeadroom)), reference);
  const VF factor = power_of_two(df, hn::Sub(reference, moved));
  reference = moved;
  return hn::IfThenElse(moves, factor, hn::Set(df, 1.0f));
}

// A row that has seen no key has the reference minus infinity; subtracting that would give NaN.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V finite_reference(D d, V reference) {
  return hn::IfThenZeroElse(hn::Eq(reference, hn::Set(d, kMinusInfinity)), reference);
}

// Whether a reference is so large that its rounding error, in an exponent, could carry weights out
// of range: `weight` subtracts it from an exact product. Scaled and so rounded by itself first, the
// largest score is the reference's equal again.
HWY_INLINE bool is_coarse(VF reference) {
  return !hn::AllFalse(df, hn::Gt(hn::Abs(reference), hn::Set(df, 0x1p24f)));
}

// Weight of a score. With kAboveZero a visible key's weight does not become zero however small it
// is, so that zero means hidden.
template <bool kAboveZero>
HWY_INLINE VF weight(VF score, VF factor, VF reference) {
  const VF p = power_of_two(df, hn::MulSub(score, factor, reference));
  if constexpr (!kAboveZero) return p;
  const auto hidden = hn::Eq(score, hn::Set(df, kMinusInfinity));
  return hn::IfThenZeroElse(hidden, hn::Max(hn::Set(df, 0x1p-126f), p));
}

// A sum of values times a factor that may be zero. An infinite value that was summed with a weight
// above zero stays, however small the weight has become.
HWY_INLINE VF scale_sum(VF sum, VF factor) {
  return hn::IfThenElse(hn::IsFinite(sum), hn::Mul(sum, factor), sum);
}

// What becomes of rows when all their keys are summed: the factor for the sums of values, and the
// parts of the log-sum-exp. The sink is one more logit, without a value.
template <class D, class V = hn::Vec<D>>
struct RowEnd {
  V factor;
  V reference;
  V total;
};

template <class D, class V = hn::Vec<D>>
HWY_INLINE RowEnd<D> end_rows(D d, V reference, V sum, const float* HWY_RESTRICT sinks) {
  const V one = hn::Set(d, 1.0f);
  const auto unseen = hn::Eq(sum, hn::Zero(d));
  if (!sinks) return {hn::IfThenZeroElse(unseen, hn::Div(one, sum)), reference, sum};
  const V sink = hn::Mul(hn::LoadU(d, sinks), hn::Set(d, kLog2E));
  const V maximum = hn::Max(reference, sink);
  const V finite = finite_reference(d, maximum);
  const V weight = power_of_two(d, hn::Sub(reference, finite));
  const V total = hn::MulAdd(sum, weight, power_of_two(d, hn::Sub(sink, finite)));
  return {hn::IfThenZeroElse(unseen, hn::Div(weight, total)), maximum, total};
}

// Natural logarithm of the sum of exponentials.
inline float log_sum_exp(float reference, float total) {
  return static_cast<float>((double{reference} + std::log2(double{total})) * kLn2);
}

}  // namespace parapet::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // PARAPET_CPU_SOFTMAX_INL_H_
