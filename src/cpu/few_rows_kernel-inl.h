// The arithmetic of the few-rows path: some rows of a key head against a few keys.

#include <hwy/highway.h>

#if defined(PARAPET_CPU_FEW_ROWS_KERNEL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PARAPET_CPU_FEW_ROWS_KERNEL_INL_H_
#undef PARAPET_CPU_FEW_ROWS_KERNEL_INL_H_
#else
#define PARAPET_CPU_FEW_ROWS_KERNEL_INL_H_
#endif

#include "cpu/softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace parapet::cpu::HWY_NAMESPACE {

constexpr int64 kStepKeys = 16;  // keys of a step
static_assert(kStepKeys % kLanes == 0);

// Registers for the sums of scores, and for the weights by which values are added.
#if HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM_A64
constexpr int64 kFewRowsRegisters = 16;
#else
constexpr int64 kFewRowsRegisters = 8;
#endif

// Keeps a loaded vector in its register. Without this GCC turns a vector that is used twice into
// two memory operands, and the loops below, which need almost as many loads as multiply-adds, wait
// for the load ports.
HWY_INLINE VF in_register(VF x) {
#if HWY_ARCH_X86 && HWY_COMPILER_GCC
#if HWY_TARGET <= HWY_AVX3
  asm("" : "+v"(x.raw));
#else
  asm("" : "+x"(x.raw));
#endif
#endif
  return x;
}

// The sum of the blocks of a vector.
template <class D>
HWY_INLINE hn::Vec<decltype(d4)> sum_blocks(HWY_MAYBE_UNUSED D d, hn::Vec<D> x) {
  if constexpr (hn::MaxLanes(D()) > kBlock) {
    const hn::Half<D> half;
    return sum_blocks(half, hn::Add(hn::LowerHalf(half, x), hn::UpperHalf(half, x)));
  } else {
    return x;
  }
}

// Four vectors -> their four sums of lanes.
HWY_INLINE hn::Vec<decltype(d4)> sums_of_lanes(VF a, VF b, VF c, VF d) {
  const hn::RepartitionToWide<DI> d64;
  // a0+a2 b0+b2 a1+a3 b1+b3, then the same of c and d
  const VF ab = hn::Add(hn::InterleaveLower(df, a, b), hn::InterleaveUpper(df, a, b));
  const VF cd = hn::Add(hn::InterleaveLower(df, c, d), hn::InterleaveUpper(df, c, d));
  const auto ab64 = hn::BitCast(d64, ab), cd64 = hn::BitCast(d64, cd);
  return sum_blocks(df, hn::Add(hn::BitCast(df, hn::InterleaveLower(d64, ab64, cd64)),
                                hn::BitCast(df, hn::InterleaveUpper(d64, ab64, cd64))));
}

struct Larger {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return hn::Max(a, b);
  }
};
struct Add {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return hn::Add(a, b);
  }
};

// Combines the lanes i, i + kRows, i + 2 kRows, ...; each of them holds the result.
template <int64 kRows, class Combine>
HWY_INLINE VF over_lanes_of_row(VF x, const Combine& combine) {
  if constexpr (kLanes > kBlock) {
    HWY_ALIGN float lanes[kLanes];
    hn::Store(x, df, lanes);
    auto block = hn::Load(d4, lanes);
    for (int64 i = kBlock; i < kLanes; i += kBlock) block = combine(block, hn::Load(d4, lanes + i));
    hn::Store(block, d4, lanes);
    x = hn::LoadDup128(df, lanes);
  }
  if constexpr (kRows < 4) x = combine(x, hn::Shuffle1032(x));
  if constexpr (kRows < 2) x = combine(x, hn::Shuffle2301(x));
  return x;
}

// scores[key][row] for as many keys as have room in the registers; `padded` numbers of a row are
// read.
template <int64 kRows>
constexpr int64 kScoreKeys = kFewRowsRegisters / kRows;

template <int64 kRows, class T>
HWY_INLINE void score_keys(const T* const (&k)[kScoreKeys<kRows>], const float* const (&q)[kRows],
                           int64 padded, float* HWY_RESTRICT scores) {
  VF sums[kFewRowsRegisters];
  for (VF& sum : sums) sum = hn::Zero(df);
  for (int64 d = 0; d < padded; d += kLanes) {
    VF x[kRows];
#pragma GCC unroll 4
    for (int64 row = 0; row < kRows; ++row) x[row] = in_register(hn::Load(df, q[row] + d));
#pragma GCC unroll 16
    for (int64 key = 0; key < kScoreKeys<kRows>; ++key) {
      const VF y = in_register(load_floats(df, k[key] + d));
#pragma GCC unroll 4
      for (int64 row = 0; row < kRows; ++row) {
        sums[key * kRows + row] = hn::MulAdd(y, x[row], sums[key * kRows + row]);
      }
    }
  }
  for (int64 i = 0; i < kFewRowsRegisters; i += kBlock) {
    hn::Store(sums_of_lanes(sums[i], sums[i + 1], sums[i + 2], sums[i + 3]), d4, scores + i);
  }
}

// out[row] += sum over four keys of weights[key][row] * v[key], for a few rows at a time, so that
// their weights stay in registers.
constexpr int64 kValueKeys = 4;

template <int64 kRows, bool kSkipHidden, class T>
HWY_INLINE void add_values_of_keys(const T* const (&v)[kValueKeys],
                                   const float* HWY_RESTRICT weights, int64 padded,
                                   float* const (&out)[kRows]) {
  constexpr int64 kAtOnce = plan::min(kRows, kFewRowsRegisters / kValueKeys);
  for (int64 first = 0; first < kRows; first += kAtOnce) {
    VF p[kValueKeys][kAtOnce];
    for (int64 key = 0; key < kValueKeys; ++key) {
      for (int64 row = 0; row < kAtOnce; ++row) {
        p[key][row] = hn::Set(df, weights[key * kRows + first + row]);
      }
    }
    for (int64 d = 0; d < padded; d += kLanes) {
      VF sums[kAtOnce];
#pragma GCC unroll 4
      for (int64 row = 0; row < kAtOnce; ++row) sums[row] = hn::Load(df, out[first + row] + d);
#pragma GCC unroll 4
      for (int64 key = 0; key < kValueKeys; ++key) {
        const VF x = in_register(load_floats(df, v[key] + d));
#pragma GCC unroll 4
        for (int64 row = 0; row < kAtOnce; ++row) {
          const VF added = hn::MulAdd(x, p[key][row], sums[row]);
          const auto hidden = hn::Eq(p[key][row], hn::Zero(df));
          sums[row] = kSkipHidden ? hn::IfThenElse(hidden, sums[row], added) : added;
        }
      }
#pragma GCC unroll 4
      for (int64 row = 0; row < kAtOnce; ++row) hn::Store(sums[row], df, out[first + row] + d);
    }
  }
}

}  // namespace parapet::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // PARAPET_CPU_FEW_ROWS_KERNEL_INL_H_
