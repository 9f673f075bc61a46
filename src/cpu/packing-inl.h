// Reorders queries, keys and values for the outer-product kernel, as floats whatever their type is.

#include <hwy/highway.h>

#if defined(PARAPET_CPU_PACKING_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PARAPET_CPU_PACKING_INL_H_
#undef PARAPET_CPU_PACKING_INL_H_
#else
#define PARAPET_CPU_PACKING_INL_H_
#endif

#include "cpu/head.h"
#include "cpu/kernels.h"
#include "cpu/outer_product-inl.h"
#include "plan/cpu_schedule.h"

HWY_BEFORE_NAMESPACE();
namespace parapet::cpu::HWY_NAMESPACE {

constexpr hn::CappedTag<float, kGroup> d_group;

constexpr int64 kTileKeys = plan::kCpuTileKeys;
static_assert(kTileKeys % kGroup == 0);
// How many keys packing looks ahead.
constexpr int64 kFetchKeys = 16;

// Keys are packed as [group of keys][dim][key in group], a tile of values as [group of
// dims][key][dim in group], both in whole groups of keys. `key` begins a group, `tile` a tile.
HWY_INLINE float* packed_keys(const Packed& packed, int64 key, int64 dim) {
  return packed.k + (key - packed.keys.begin) * plan::round_up(dim, kBlock);
}
HWY_INLINE float* packed_values(const Packed& packed, int64 tile, int64 dim_v) {
  return packed.v + (tile - packed.keys.begin) * plan::round_up(dim_v, kGroup);
}
HWY_INLINE int64 packed_tile_keys(const Packed& packed, int64 tile) {
  return plan::round_up(plan::min(kTileKeys, packed.keys.end - tile), kGroup);
}
HWY_INLINE float& packed_check(const Packed& packed, int64 tile) {
  return packed.v_check[(tile - packed.keys.begin) / kTileKeys];
}

// Transposes 4 x 4 within each block: block b of result i holds lane 4 b + i of the four inputs.
HWY_INLINE void transpose_blocks(VF (&r)[kBlock]) {
  const hn::RepartitionToWide<DI> d64;
  const auto low01 = hn::BitCast(d64, hn::InterleaveLower(df, r[0], r[1]));  // 0 0 1 1
  const auto low23 = hn::BitCast(d64, hn::InterleaveLower(df, r[2], r[3]));
  const auto high01 = hn::BitCast(d64, hn::InterleaveUpper(df, r[0], r[1]));  // 2 2 3 3
  const auto high23 = hn::BitCast(d64, hn::InterleaveUpper(df, r[2], r[3]));
  r[0] = hn::BitCast(df, hn::InterleaveLower(d64, low01, low23));
  r[1] = hn::BitCast(df, hn::InterleaveUpper(d64, low01, low23));
  r[2] = hn::BitCast(df, hn::InterleaveLower(d64, high01, high23));
  r[3] = hn::BitCast(df, hn::InterleaveUpper(d64, high01, high23));
}

// Stores the first `blocks` blocks of a vector, `stride` floats apart.
template <class D>
HWY_INLINE void store_blocks(D d, hn::Vec<D> x, float* to, int64 stride, int64 blocks) {
  if constexpr (hn::MaxLanes(D()) > kBlock) {
    const hn::Half<D> half;
    constexpr int64 kHalfBlocks = static_cast<int64>(hn::MaxLanes(D())) / kBlock / 2;
    store_blocks(half, hn::LowerHalf(half, x), to, stride, blocks);
    if (HWY_LIKELY(blocks > kHalfBlocks)) {
      store_blocks(half, hn::UpperHalf(half, x), to + kHalfBlocks * stride, stride,
                   blocks - kHalfBlocks);
    }
  } else {
    hn::StoreU(x, d, to);
  }
}

// Four rows of `dim` elements, times `factor` -> to[element][row], `stride` floats from one element
// to the next. Writes up to three elements more than there are, all zero.
template <class T>
HWY_INLINE void interleave_rows(const T* const* rows, int64 dim, VF factor, int64 stride,
                                float* HWY_RESTRICT to) {
  const auto step = [&](int64 d, int64 count, int64 blocks) HWY_ATTR {
    VF r[kBlock];
    for (int64 i = 0; i < kBlock; ++i) {
      r[i] = hn::Mul(load_up_to(df, rows[i] + d, count), factor);
    }
    transpose_blocks(r);
    for (int64 i = 0; i < kBlock; ++i) {
      store_blocks(df, r[i], to + (d + i) * stride, kBlock * stride, blocks);
    }
  };
  int64 d = 0;
  for (; d + kLanes <= dim; d += kLanes) step(d, kLanes, kLanes / kBlock);
  if (d < dim) step(d, dim - d, plan::ceil_div(dim - d, kBlock));
}

// Packs the tiles of `part`, which begins with a tile of `packed`.
template <class T>
HWY_NOINLINE void pack_keys_and_values(const Head& head, const Packed& packed, Range part) {
  const int64 dim = head.problem.head_dim, dim_v = head.problem.head_dim_v;
  for (int64 tile = part.begin; tile < part.end; tile += kTileKeys) {
    const int64 end = plan::min(tile + kTileKeys, part.end);
    const int64 v_stride = packed_tile_keys(packed, tile) * kGroup;
    float* const v_tile = packed_values(packed, tile, dim_v);
    auto check = hn::Zero(d_group);
    for (int64 key = tile; key < end; key += kGroup) {
      // Keys that fill the last group repeat the last one; masks hide them.
      const T *k[kGroup], *v[kGroup];
      for (int64 i = 0; i < kGroup; ++i) {
        const int64 source = plan::min(key + i, end - 1);
        k[i] = head.k<T>(source);
        v[i] = head.v<T>(source);
        const int64 ahead = plan::min(key + kFetchKeys + i, part.end - 1);
        fetch_row(head.k<T>(ahead), static_cast<std::size_t>(dim) * sizeof(T));
        fetch_row(head.v<T>(ahead), static_cast<std::size_t>(dim_v) * sizeof(T));
      }
      float* const k_group = packed_keys(packed, key, dim);
      for (int64 i = 0; i < kGroup; i += kBlock) {
        interleave_rows(k + i, dim, hn::Set(df, 1.0f), kGroup, k_group + i);
      }
      float* const v_group = v_tile + (key - tile) * kGroup;
      for (int64 d = 0; d < dim_v; d += kGroup) {
        for (int64 i = 0; i < kGroup; ++i) {
          const auto x = load_up_to(d_group, v[i] + d, dim_v - d);
          hn::StoreU(x, d_group, v_group + d / kGroup * v_stride + i * kGroup);
          check = hn::MulAdd(x, hn::Zero(d_group), check);
        }
      }
    }
    // 0, or NaN when a value is not finite: then a weight of zero is not enough to hide it.
    packed_check(packed, tile) = hn::AllTrue(d_group, hn::Eq(check, hn::Zero(d_group)))
                                     ? 0.0f
                                     : std::numeric_limits<float>::quiet_NaN();
  }
}

}  // namespace parapet::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // PARAPET_CPU_PACKING_INL_H_
