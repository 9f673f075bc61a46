// Work whose rate is a ceiling of this machine.

#include <hwy/highway.h>

#if defined(PARAPET_CPU_MEASURE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PARAPET_CPU_MEASURE_INL_H_
#undef PARAPET_CPU_MEASURE_INL_H_
#else
#define PARAPET_CPU_MEASURE_INL_H_
#endif

#include "cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace parapet::cpu::HWY_NAMESPACE {

// Multiply-adds with nothing to load; returns floating-point operations. The chains start from
// different numbers, or the compiler would find them equal and keep one.
double multiply_add_round() {
  constexpr int64 kRounds = 200'000, kChains = 12;
  const VF factor = hn::Set(df, 0.999f), term = hn::Set(df, 1.0f);
  VF chain[kChains];
  for (int64 i = 0; i < kChains; ++i) chain[i] = hn::Set(df, static_cast<float>(i));
  for (int64 round = 0; round < kRounds; ++round) {
#pragma GCC unroll 12
    for (int64 i = 0; i < kChains; ++i) chain[i] = hn::MulAdd(chain[i], factor, term);
  }
  VF sum = hn::Zero(df);
  for (const VF& end : chain) sum = hn::Add(sum, end);
  volatile float keep = hn::GetLane(sum);
  static_cast<void>(keep);
  return 2.0 * kChains * kLanes * kRounds;
}

// Reads a buffer once; returns bytes. A multiple of four vectors is read.
double read_round(const float* data, int64 floats) {
  VF sums[4] = {hn::Zero(df), hn::Zero(df), hn::Zero(df), hn::Zero(df)};
  for (int64 i = 0; i + 4 * kLanes <= floats; i += 4 * kLanes) {
#pragma GCC unroll 4
    for (int64 j = 0; j < 4; ++j) sums[j] = hn::Add(sums[j], hn::LoadU(df, data + i + j * kLanes));
  }
  volatile float keep = hn::GetLane(hn::Add(hn::Add(sums[0], sums[1]), hn::Add(sums[2], sums[3])));
  static_cast<void>(keep);
  return static_cast<double>(floats) * sizeof(float);
}

}  // namespace parapet::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // PARAPET_CPU_MEASURE_INL_H_
