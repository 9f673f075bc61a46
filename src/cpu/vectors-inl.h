// Vector types of the target being compiled, and conversions from and to the three element types.

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

// Compiled once for each target: the guard toggles.
#if defined(PARAPET_CPU_VECTORS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PARAPET_CPU_VECTORS_INL_H_
#undef PARAPET_CPU_VECTORS_INL_H_
#else
#define PARAPET_CPU_VECTORS_INL_H_
#endif

#include "plan/host_device.h"

// Whether float16 is converted by an instruction. Where it is not, some versions of Highway
// truncate and take infinities for numbers.
#undef PARAPET_HAS_FLOAT16
#define PARAPET_HAS_FLOAT16 (HWY_TARGET != HWY_SSE4 && HWY_TARGET != HWY_SSSE3)

HWY_BEFORE_NAMESPACE();
namespace parapet::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using plan::int64;

using DF = hn::ScalableTag<float>;
using DI = hn::RebindToSigned<DF>;
using VF = hn::Vec<DF>;
constexpr DF df;
constexpr DI di;
constexpr int64 kLanes = static_cast<int64>(hn::MaxLanes(DF()));

// A block is the four lanes that every target has.
constexpr int64 kBlock = 4;
constexpr hn::CappedTag<float, kBlock> d4;

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// ---- Loads --------------------------------------------------------------------------------------

template <class D>
HWY_INLINE hn::Vec<D> load_floats(D d, const float* from) {
  return hn::LoadU(d, from);
}
template <class D>
HWY_INLINE hn::Vec<D> load_floats(D d, const hwy::bfloat16_t* from) {
  const hn::Rebind<std::uint16_t, D> d16;
  const hn::RebindToUnsigned<D> d32;
  const auto bits = hn::LoadU(d16, reinterpret_cast<const std::uint16_t*>(from));
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(d32, bits)));
}
template <class D>
HWY_INLINE hn::Vec<D> load_floats(D d, const hwy::float16_t* from) {
#if PARAPET_HAS_FLOAT16
  const hn::Rebind<hwy::float16_t, D> d16;
  return hn::PromoteTo(d, hn::LoadU(d16, from));
#else
  const hn::Rebind<std::uint16_t, D> d16;
  const hn::RebindToUnsigned<D> d32;
  const auto bits =
      hn::PromoteTo(d32, hn::LoadU(d16, reinterpret_cast<const std::uint16_t*>(from)));
  const auto size = hn::ShiftLeft<13>(hn::And(bits, hn::Set(d32, 0x7FFFu)));
  const auto sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(d32, 0x8000u)));
  // The product moves the exponent, exactly, and makes subnormal numbers normal.
  const auto moved = hn::BitCast(d32, hn::Mul(hn::BitCast(d, size), hn::Set(d, 0x1p112f)));
  const auto special =
      hn::VecFromMask(d32, hn::RebindMask(d32, hn::Ge(hn::BitCast(d, size), hn::Set(d, 0x1p-96f))));
  const auto exponent = hn::And(special, hn::Set(d32, 0x7F800000u));  // of infinities and NaN
  return hn::BitCast(d, hn::Or(sign, hn::Or(moved, exponent)));
#endif
}

// The first `count` elements, then zeros; reads no further.
template <class D, class T>
HWY_INLINE hn::Vec<D> load_first(D d, const T* from, int64 count) {
  T elements[hn::MaxLanes(D())] = {};
  std::memcpy(elements, from, static_cast<std::size_t>(count) * sizeof(T));
  return load_floats(d, elements);
}

// As many as there are, at most a vector.
template <class D, class T>
HWY_INLINE hn::Vec<D> load_up_to(D d, const T* from, int64 count) {
  if (HWY_LIKELY(count >= static_cast<int64>(hn::MaxLanes(D())))) return load_floats(d, from);
  return load_first(d, from, count);
}

// A row of `dim` elements as floats, with zeros up to a whole vector.
template <class T>
HWY_INLINE void read_row(const T* HWY_RESTRICT from, int64 dim, float* HWY_RESTRICT to) {
  for (int64 d = 0; d < dim; d += kLanes) {
    hn::StoreU(load_up_to(df, from + d, dim - d), df, to + d);
  }
}

// Asks for a row in the second-level cache. Rows of a head lie far apart, often a page, where they
// share a few sets of the first-level cache and would push each other out before they are read; and
// no hardware prefetcher follows them.
HWY_INLINE void fetch_row(const void* row, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; i += 64) {
    __builtin_prefetch(static_cast<const char*>(row) + i, 0, 2);
  }
}

// ---- Stores -------------------------------------------------------------------------------------

// Rounds to nearest even in the upper 32 - kDropped bits. The lower bits of the result are garbage.
template <int kDropped>
HWY_INLINE VF round_bits(VF x) {
  const hn::RebindToUnsigned<DF> d32;
  const auto bits = hn::BitCast(d32, x);
  const auto odd = hn::And(hn::ShiftRight<kDropped>(bits), hn::Set(d32, 1u));
  const auto half = hn::Set(d32, (1u << (kDropped - 1)) - 1);
  return hn::BitCast(df, hn::Add(bits, hn::Add(odd, half)));
}

HWY_INLINE void store_floats(VF x, float* to) {
  hn::StoreU(x, df, to);
}
HWY_INLINE void store_floats(VF x, hwy::bfloat16_t* to) {
  const hn::RebindToUnsigned<DF> d32;
  const hn::Rebind<std::uint16_t, DF> d16;
  // A NaN keeps its upper bits and is made quiet, so that it cannot round to infinity.
  const VF quiet = hn::BitCast(df, hn::Or(hn::BitCast(d32, x), hn::Set(d32, 0x00400000u)));
  const VF rounded = hn::IfThenElse(hn::IsNaN(x), quiet, round_bits<16>(x));
  // The upper half fits 16 bits, which the saturating demotion keeps as they are.
  const auto upper = hn::BitCast(di, hn::ShiftRight<16>(hn::BitCast(d32, rounded)));
  hn::StoreU(hn::DemoteTo(d16, upper), d16, reinterpret_cast<std::uint16_t*>(to));
}
HWY_INLINE void store_floats(VF x, hwy::float16_t* to) {
#if PARAPET_HAS_FLOAT16
  const hn::Rebind<hwy::float16_t, DF> d16;
  hn::StoreU(hn::DemoteTo(d16, x), d16, to);
#else
  const hn::RebindToUnsigned<DF> d32;
  const hn::Rebind<std::uint16_t, DF> d16;
  const VF size = hn::Abs(x);
  const auto sign = hn::And(hn::ShiftRight<16>(hn::BitCast(d32, x)), hn::Set(d32, 0x8000u));
  const auto normal =
      hn::Sub(hn::ShiftRight<13>(hn::BitCast(d32, round_bits<13>(size))), hn::Set(d32, 112u << 10));
  // Adding 0.5 rounds to multiples of 2^-24.
  const auto small = hn::Sub(hn::BitCast(d32, hn::Add(size, hn::Set(df, 0.5f))),
                             hn::BitCast(d32, hn::Set(df, 0.5f)));
  const auto if_small = hn::RebindMask(d32, hn::Lt(size, hn::Set(df, 0x1p-14f)));
  const auto if_large = hn::RebindMask(d32, hn::Ge(size, hn::Set(df, 65520.0f)));
  const auto if_nan = hn::RebindMask(d32, hn::IsNaN(x));
  auto bits = hn::IfThenElse(if_small, small, normal);
  bits = hn::IfThenElse(if_large, hn::Set(d32, 0x7C00u), bits);
  bits = hn::Or(hn::IfThenElse(if_nan, hn::Set(d32, 0x7E00u), bits), sign);
  hn::StoreU(hn::DemoteTo(d16, hn::BitCast(di, bits)), d16, reinterpret_cast<std::uint16_t*>(to));
#endif
}

// Rounds a row of `dim` floats, times `factor`, to the elements of `to`.
template <class T>
HWY_INLINE void write_row(const float* HWY_RESTRICT from, int64 dim, VF factor,
                          T* HWY_RESTRICT to) {
  int64 d = 0;
  for (; d + kLanes <= dim; d += kLanes) {
    store_floats(hn::Mul(hn::LoadU(df, from + d), factor), to + d);
  }
  if (d < dim) {
    T last[kLanes];
    store_floats(hn::Mul(hn::LoadU(df, from + d), factor), last);
    std::memcpy(to + d, last, static_cast<std::size_t>(dim - d) * sizeof(T));
  }
}

}  // namespace parapet::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // PARAPET_CPU_VECTORS_INL_H_
