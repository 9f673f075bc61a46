// The one kernel that does all the arithmetic of the panels path: a sum of outer products.

#include <hwy/highway.h>

#if defined(PARAPET_CPU_OUTER_PRODUCT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PARAPET_CPU_OUTER_PRODUCT_INL_H_
#undef PARAPET_CPU_OUTER_PRODUCT_INL_H_
#else
#define PARAPET_CPU_OUTER_PRODUCT_INL_H_
#endif

#include "cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace parapet::cpu::HWY_NAMESPACE {

// Accumulators are kGroup x kColumns vectors. 4 x 3, with a row of the panel and one broadcast
// number, fill the 16 registers of AVX2; with 32 registers a larger group needs fewer loads a
// product, and keeps narrow panels busy.
#if HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM_A64
constexpr int64 kGroup = 8;
#else
constexpr int64 kGroup = 4;
#endif
constexpr int64 kColumns = 3;
constexpr int64 kWidth = kColumns * kLanes;  // floats of a panel's row

template <int64 kUsed>  // columns in use
using Accumulators = VF[kGroup][kUsed];

// sums[i][j] += sum over steps of groups[step][i] * panel[step][j].
template <int64 kUsed>
HWY_INLINE void add_outer_products(const float* HWY_RESTRICT groups,
                                   const float* HWY_RESTRICT panel, int64 steps,
                                   Accumulators<kUsed>& sums) {
  // A local copy, which the compiler keeps in registers.
  VF local[kGroup][kUsed];
  for (int64 i = 0; i < kGroup; ++i) {
    for (int64 j = 0; j < kUsed; ++j) local[i][j] = sums[i][j];
  }
#pragma GCC unroll 4
  for (int64 step = 0; step < steps; ++step) {
    VF row[kUsed];
#pragma GCC unroll 4
    for (int64 j = 0; j < kUsed; ++j) row[j] = hn::Load(df, panel + j * kLanes);
#pragma GCC unroll 8
    for (int64 i = 0; i < kGroup; ++i) {
      const VF number = hn::Set(df, groups[i]);
#pragma GCC unroll 4
      for (int64 j = 0; j < kUsed; ++j) local[i][j] = hn::MulAdd(number, row[j], local[i][j]);
    }
    groups += kGroup;
    panel += kWidth;
  }
  for (int64 i = 0; i < kGroup; ++i) {
    for (int64 j = 0; j < kUsed; ++j) sums[i][j] = local[i][j];
  }
}

// Calls `function` with the number of columns as a compile-time constant.
template <class Function>
HWY_INLINE void with_columns(int64 used, const Function& function) {
  static_assert(kColumns == 3);
  switch (used) {
    case 1:
      return function(std::integral_constant<int64, 1>());
    case 2:
      return function(std::integral_constant<int64, 2>());
    default:
      return function(std::integral_constant<int64, 3>());
  }
}

}  // namespace parapet::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // PARAPET_CPU_OUTER_PRODUCT_INL_H_
