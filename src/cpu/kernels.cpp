#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wpedantic"
#pragma GCC diagnostic ignored "-Wshadow"
// Exact attention forward for CPUs, on Google Highway and OpenMP.
//
// Two paths, both over "rows": the query heads that share one KV head, flattened as head * queries + query.
//
// 1. Panels (many rows). Everything is transposed so that one vector lane is one row: the score tile is
//    S^T = K Q^T [key][row] and the output is O^T = V^T P^T [head_dim][row]. Both products are then the same
//    kernel (a sum of outer products of four broadcast scalars and a panel of three vectors), the row maximum and
//    row sum need no cross-lane work, and P^T comes out of the first product in the layout the second one reads.
// 2. Few rows (decoding). K and V are read once, in place, for all rows of a KV head; lanes run along head_dim and
//    the keys are split into fixed chunks that are merged in order.
//
// Neither the tiling nor the order of any sum depends on the number of threads, so the results do not either.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/kernels.cpp"
// Vectors are kept in arrays below, which scalable vector types do not allow; such CPUs use their fixed-size target.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#endif
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include <omp.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <vector>

#include "cpu/kernels.h"
#include "hwy/aligned_allocator.h"

#ifndef ATTENTION_CPU_COMMON_
#define ATTENTION_CPU_COMMON_
namespace attention_cpu {

#ifndef TILE_KEYS
#define TILE_KEYS 128  // both may be set on the command line, for tuning
#endif
#ifndef BLOCK_PANELS
#define BLOCK_PANELS 4
#endif
constexpr size_t kQuad = 4;                       // broadcast scalars per step of the outer-product kernel
constexpr size_t kTileKeys = TILE_KEYS;           // keys per tile: P^T panel and Q^T (or O^T) panel share the L1 cache
constexpr size_t kBlockPanels = BLOCK_PANELS;     // panels per work item, so that a K/V tile is reused from L2
constexpr size_t kPackKeys = 2 * kTileKeys;       // keys per packing item
constexpr size_t kPrefetchKeys = 16;              // how far packing looks ahead
constexpr size_t kFewRows = 8;                    // up to here K and V are read in place
constexpr size_t kChunkKeys = 512;                // keys per work item of the few-rows path
constexpr size_t kStepKeys = 16;                  // keys per step inside a chunk
constexpr float kLazyBound = 24.0f;               // log2 of how far a score may exceed the reference maximum
constexpr float kLog2E = 1.44269504088896340736f;
constexpr float kLn2 = 0.69314718055994530942f;
constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

constexpr size_t DivideUp(size_t a, size_t b) { return (a + b - 1) / b; }
constexpr size_t RoundUp(size_t a, size_t b) { return DivideUp(a, b) * b; }

// One memory block that grows and is kept between calls: fresh pages cost more than small attention problems.
class Workspace {
 public:
  float* Reserve(size_t floats) {
    if (floats > size_) {
      data_ = hwy::AllocateAligned<float>(floats);
      size_ = data_ ? floats : 0;
    }
    return data_.get();
  }

 private:
  hwy::AlignedFreeUniquePtr<float[]> data_;
  size_t size_ = 0;
};

// The problem with sizes unsigned and derived quantities filled in.
struct Problem {
  explicit Problem(const AttentionCpuArgs& a)
      : args(a),
        group(static_cast<size_t>(a.heads / a.kv_heads)),
        queries(static_cast<size_t>(a.queries)),
        keys(static_cast<size_t>(a.keys)),
        dim(static_cast<size_t>(a.head_dim)),
        kv_heads(static_cast<size_t>(a.batch * a.kv_heads)),
        rows(group * queries),
        threads(a.threads > 0 ? static_cast<size_t>(a.threads) : static_cast<size_t>(omp_get_max_threads())) {}

  // Keys that a row may see, counted from the first one.
  size_t VisibleKeys(size_t row) const {
    if (!args.causal) return keys;
    const int64_t last = static_cast<int64_t>(row % queries) + args.keys - args.queries;
    return last < 0 ? 0 : static_cast<size_t>(last) + 1;
  }
  int64_t KvOffset(const AttentionCpuStrides& s, size_t kv_head, size_t key) const {
    const int64_t b = static_cast<int64_t>(kv_head) / args.kv_heads, h = static_cast<int64_t>(kv_head) % args.kv_heads;
    return b * s.batch + h * s.head + static_cast<int64_t>(key) * s.row;
  }
  int64_t RowOffset(const AttentionCpuStrides& s, size_t kv_head, size_t row) const {
    const int64_t b = static_cast<int64_t>(kv_head) / args.kv_heads;
    return b * s.batch + QueryHead(kv_head, row) * s.head + static_cast<int64_t>(row % queries) * s.row;
  }
  void StoreLse(size_t kv_head, size_t row, float maximum, float sum) const {
    if (!args.lse) return;
    const int64_t b = static_cast<int64_t>(kv_head) / args.kv_heads;
    const float lse = sum == 0.0f ? kMinusInfinity : (maximum + std::log2(sum)) * kLn2;
    args.lse[(b * args.heads + QueryHead(kv_head, row)) * args.queries + static_cast<int64_t>(row % queries)] = lse;
  }

  const AttentionCpuArgs& args;
  size_t group, queries, keys, dim, kv_heads, rows, threads;

 private:
  int64_t QueryHead(size_t kv_head, size_t row) const {
    return (static_cast<int64_t>(kv_head) % args.kv_heads) * static_cast<int64_t>(group) +
           static_cast<int64_t>(row / queries);
  }
};

// Waits without holding the core for long: another thread of ours may need it.
template <class Ready>
void WaitUntil(Ready ready) {
  for (int spins = 0; !ready(); ++spins) {
    if (spins > 256) sched_yield();
  }
}

}  // namespace attention_cpu
#endif  // ATTENTION_CPU_COMMON_

HWY_BEFORE_NAMESPACE();
namespace attention_cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using DI = hn::RebindToSigned<DF>;
using VF = hn::Vec<DF>;
constexpr DF df;
constexpr DI di;
constexpr hn::CappedTag<float, kQuad> d4;
constexpr size_t kLanes = HWY_MAX_BYTES / sizeof(float);
constexpr size_t kColumns = 3;                   // vectors per panel row: 4 x 3 accumulators + 3 + 1 fill 16 registers
constexpr size_t kWidth = kColumns * kLanes;     // rows per panel

// ---- Conversions ----------------------------------------------------------------------------------------------

template <class D>
HWY_INLINE hn::Vec<D> LoadFloats(D d, const float* p) {
  return hn::LoadU(d, p);
}
template <class D>
HWY_INLINE hn::Vec<D> LoadFloats(D d, const hwy::bfloat16_t* p) {
  const hn::Rebind<uint16_t, D> d16;
  const hn::RebindToUnsigned<D> d32;
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(d32, hn::LoadU(d16, reinterpret_cast<const uint16_t*>(p)))));
}
template <class D>
HWY_INLINE hn::Vec<D> LoadFloats(D d, const hwy::float16_t* p) {
  const hn::Rebind<hwy::float16_t, D> d16;
  return hn::PromoteTo(d, hn::LoadU(d16, p));
}
// The first `count` of a vector, then zeros.
template <class D, class T>
HWY_INLINE hn::Vec<D> LoadSomeFloats(D d, const T* p, size_t count) {
  T some[kLanes] = {};
  memcpy(some, p, count * sizeof(T));
  return LoadFloats(d, some);
}
template <class D, class T>
HWY_INLINE hn::Vec<D> LoadUpTo(D d, const T* p, size_t count) {
  return HWY_LIKELY(count >= hn::MaxLanes(D())) ? LoadFloats(d, p) : LoadSomeFloats(d, p, count);
}

HWY_INLINE void StoreFloats(VF x, float* p) { hn::StoreU(x, df, p); }
HWY_INLINE void StoreFloats(VF x, hwy::bfloat16_t* p) {
  // Round to nearest even; a NaN keeps its top bits and is made quiet so that it cannot round to infinity.
  const hn::RebindToUnsigned<DF> d32;
  const hn::Rebind<uint16_t, DF> d16;
  const auto bits = hn::BitCast(d32, x);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d32, 1));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(d32, 0x7FFF)));
  const auto quiet = hn::Or(bits, hn::Set(d32, 0x00400000));
  const auto chosen = hn::IfThenElse(hn::RebindMask(d32, hn::IsNaN(x)), quiet, rounded);
  const hn::RebindToSigned<decltype(d32)> s32;
  // The upper half fits 16 unsigned bits, which the signed-to-unsigned saturating demotion keeps as they are.
  hn::StoreU(hn::DemoteTo(d16, hn::BitCast(s32, hn::ShiftRight<16>(chosen))), d16, reinterpret_cast<uint16_t*>(p));
}
HWY_INLINE void StoreFloats(VF x, hwy::float16_t* p) {
  const hn::Rebind<hwy::float16_t, DF> d16;
#if HWY_TARGET == HWY_SSE4 || HWY_TARGET == HWY_SSSE3
  // Highway's conversion truncates where the CPU has none: round to nearest even in the 11 bits that stay.
  const hn::RebindToUnsigned<DF> d32;
  const auto bits = hn::BitCast(d32, x);
  const auto odd = hn::And(hn::ShiftRight<13>(bits), hn::Set(d32, 1));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(d32, 0x0FFF)));
  x = hn::IfThenElse(hn::IsNaN(x), x, hn::BitCast(df, rounded));
#endif
  hn::StoreU(hn::DemoteTo(d16, x), d16, p);
}

// Reads `dim` numbers as float into `to`, with zeros up to `padded` (a multiple of the vector length).
template <class T>
HWY_INLINE void ReadRow(const T* HWY_RESTRICT from, size_t dim, size_t padded, float* HWY_RESTRICT to) {
  size_t d = 0;
  for (; d + kLanes <= dim; d += kLanes) hn::Store(LoadFloats(df, from + d), df, to + d);
  if (d < dim) hn::Store(LoadSomeFloats(df, from + d, dim - d), df, to + d), d += kLanes;
  for (; d < padded; d += kLanes) hn::Store(hn::Zero(df), df, to + d);
}

template <class T>
HWY_INLINE void WriteRow(const float* HWY_RESTRICT from, size_t dim, VF factor, T* HWY_RESTRICT to) {
  size_t d = 0;
  for (; d + kLanes <= dim; d += kLanes) StoreFloats(hn::Mul(hn::Load(df, from + d), factor), to + d);
  if (d < dim) {
    T last[kLanes];
    StoreFloats(hn::Mul(hn::Load(df, from + d), factor), last);
    memcpy(to + d, last, (dim - d) * sizeof(T));
  }
}

// ---- Softmax pieces -------------------------------------------------------------------------------------------

// 2^x for x in [-125, 126], relative error about 1.2e-7: the rounded integer part goes to the exponent bits, the rest
// to a minimax polynomial on [-0.5, 0.5].
HWY_INLINE VF PowerOfTwo(VF x) {
  const VF to_integer = hn::Set(df, 12582912.0f);  // 1.5 * 2^23: adding it leaves round(x) in the low bits
  const VF shifted = hn::Add(x, to_integer);
  const VF f = hn::Sub(x, hn::Sub(shifted, to_integer));
  VF p = hn::MulAdd(f, hn::Set(df, 0.0013276472f), hn::Set(df, 0.00967554133f));
  p = hn::MulAdd(f, p, hn::Set(df, 0.0555071327f));
  p = hn::MulAdd(f, p, hn::Set(df, 0.240221197f));
  p = hn::MulAdd(f, p, hn::Set(df, 0.693146967f));
  p = hn::MulAdd(f, p, hn::Set(df, 1.00000007f));
  return hn::BitCast(df, hn::Add(hn::BitCast(di, p), hn::ShiftLeft<23>(hn::BitCast(di, shifted))));
}

// As above for all x up to 126. Far below it gives 2^-125, which is lost next to the term of the reference maximum.
HWY_INLINE VF PowerOfTwoAboveZero(VF x) { return PowerOfTwo(hn::Max(hn::Set(df, -125.0f), x)); }

// As above, but exactly zero far below and for minus infinity.
HWY_INLINE VF PowerOfTwoOrZero(VF x) {
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(df, -125.0f)), PowerOfTwo(x));
}

// A row without a visible key so far has the reference minus infinity; subtracting that would give NaN.
HWY_INLINE VF FiniteReference(VF reference) {
  return hn::IfThenElse(hn::Eq(reference, hn::Set(df, kMinusInfinity)), hn::Zero(df), reference);
}

// Moves the reference of those lanes where `maximum` passes it by the bound; gives the factor for what was summed.
// Any reference gives the same softmax; the bound only keeps the powers far from overflow.
HWY_INLINE VF MoveReference(VF maximum, VF& reference) {
  const auto moves = hn::Gt(maximum, hn::Add(reference, hn::Set(df, kLazyBound)));
  const VF moved = hn::IfThenElse(moves, maximum, reference);
  const VF factor = hn::IfThenElse(moves, PowerOfTwoOrZero(hn::Sub(reference, moved)), hn::Set(df, 1.0f));
  reference = moved;
  return factor;
}

HWY_INLINE bool AnyPasses(VF maximum, VF reference) {
  return !hn::AllFalse(df, hn::Gt(maximum, hn::Add(reference, hn::Set(df, kLazyBound))));
}

// ---- Panels: the kernel ---------------------------------------------------------------------------------------

struct Accumulators {
  VF c[kQuad][kColumns];
};

// c[i][j] += sum over steps of quads[step][i] * panel[step][j].  `steps` is a multiple of four.
HWY_INLINE void AddOuterProducts(const float* HWY_RESTRICT quads, const float* HWY_RESTRICT panel, size_t steps,
                                 Accumulators& acc) {
  VF c00 = acc.c[0][0], c01 = acc.c[0][1], c02 = acc.c[0][2];
  VF c10 = acc.c[1][0], c11 = acc.c[1][1], c12 = acc.c[1][2];
  VF c20 = acc.c[2][0], c21 = acc.c[2][1], c22 = acc.c[2][2];
  VF c30 = acc.c[3][0], c31 = acc.c[3][1], c32 = acc.c[3][2];
#pragma GCC unroll 4
  for (size_t step = 0; step < steps; ++step) {
    const VF b0 = hn::Load(df, panel), b1 = hn::Load(df, panel + kLanes), b2 = hn::Load(df, panel + 2 * kLanes);
    VF a = hn::Set(df, quads[0]);
    c00 = hn::MulAdd(a, b0, c00), c01 = hn::MulAdd(a, b1, c01), c02 = hn::MulAdd(a, b2, c02);
    a = hn::Set(df, quads[1]);
    c10 = hn::MulAdd(a, b0, c10), c11 = hn::MulAdd(a, b1, c11), c12 = hn::MulAdd(a, b2, c12);
    a = hn::Set(df, quads[2]);
    c20 = hn::MulAdd(a, b0, c20), c21 = hn::MulAdd(a, b1, c21), c22 = hn::MulAdd(a, b2, c22);
    a = hn::Set(df, quads[3]);
    c30 = hn::MulAdd(a, b0, c30), c31 = hn::MulAdd(a, b1, c31), c32 = hn::MulAdd(a, b2, c32);
    quads += kQuad;
    panel += kWidth;
  }
  acc = {{{c00, c01, c02}, {c10, c11, c12}, {c20, c21, c22}, {c30, c31, c32}}};
}

// One panel's running softmax: a lane per row.
struct PanelState {
  HWY_ALIGN float reference[kWidth];
  HWY_ALIGN float sum[kWidth];
  HWY_ALIGN int32_t visible[kWidth];  // keys that the row may see
  size_t least_visible, most_visible;
};

// scores[key][row] = K Q^T for `keys` (a multiple of four) keys; returns the largest score of each row.
HWY_INLINE void ScoreTile(const float* HWY_RESTRICT k_quads, const float* HWY_RESTRICT q_panel, size_t keys,
                          size_t dim4, float* HWY_RESTRICT scores, VF (&maximum)[kColumns]) {
  for (VF& m : maximum) m = hn::Set(df, kMinusInfinity);
  for (size_t key = 0; key < keys; key += kQuad) {
    const VF zero = hn::Zero(df);
    Accumulators acc = {{{zero, zero, zero}, {zero, zero, zero}, {zero, zero, zero}, {zero, zero, zero}}};
    AddOuterProducts(k_quads + key * dim4, q_panel, dim4, acc);
#pragma GCC unroll 4
    for (size_t i = 0; i < kQuad; ++i) {
#pragma GCC unroll 3
      for (size_t j = 0; j < kColumns; ++j) {
        hn::Store(acc.c[i][j], df, scores + (key + i) * kWidth + j * kLanes);
        maximum[j] = hn::Max(acc.c[i][j], maximum[j]);
      }
    }
  }
}

// Hides the keys beyond each row's last one and finds the maximum again.
HWY_INLINE void MaskTile(const PanelState& state, size_t first_key, size_t keys, float* HWY_RESTRICT scores,
                         VF (&maximum)[kColumns]) {
  for (size_t j = 0; j < kColumns; ++j) {
    const auto visible = hn::Load(di, state.visible + j * kLanes);
    VF largest = hn::Set(df, kMinusInfinity);
    for (size_t key = 0; key < keys; ++key) {
      float* at = scores + key * kWidth + j * kLanes;
      const auto hidden = hn::Gt(hn::Set(di, static_cast<int32_t>(first_key + key + 1)), visible);
      const VF s = hn::IfThenElse(hn::RebindMask(df, hidden), hn::Set(df, kMinusInfinity), hn::Load(df, at));
      hn::Store(s, df, at);
      largest = hn::Max(s, largest);
    }
    maximum[j] = largest;
  }
}

// Rescales the running sums and outputs where the reference has to move. Rare after the first tile.
HWY_NOINLINE void RescalePanel(const VF (&maximum)[kColumns], size_t dim4, PanelState& state,
                               float* HWY_RESTRICT o_panel) {
  VF factor[kColumns];
  for (size_t j = 0; j < kColumns; ++j) {
    VF reference = hn::Load(df, state.reference + j * kLanes);
    factor[j] = MoveReference(maximum[j], reference);
    hn::Store(reference, df, state.reference + j * kLanes);
    hn::Store(hn::Mul(hn::Load(df, state.sum + j * kLanes), factor[j]), df, state.sum + j * kLanes);
  }
  for (size_t d = 0; d < dim4; ++d) {
    for (size_t j = 0; j < kColumns; ++j) {
      float* at = o_panel + d * kWidth + j * kLanes;
      hn::Store(hn::Mul(hn::Load(df, at), factor[j]), df, at);
    }
  }
}

// scores -> 2^(scores - reference), and adds them to the row sums.
template <bool kMasked>
HWY_INLINE void ExponentiateTile(size_t keys, PanelState& state, float* HWY_RESTRICT scores) {
  VF reference[kColumns], sum[kColumns];
  for (size_t j = 0; j < kColumns; ++j) {
    reference[j] = FiniteReference(hn::Load(df, state.reference + j * kLanes));
    sum[j] = hn::Load(df, state.sum + j * kLanes);
  }
  for (size_t key = 0; key < keys; ++key) {
#pragma GCC unroll 3
    for (size_t j = 0; j < kColumns; ++j) {
      float* at = scores + key * kWidth + j * kLanes;
      const VF x = hn::Sub(hn::Load(df, at), reference[j]);
      const VF p = kMasked ? PowerOfTwoOrZero(x) : PowerOfTwoAboveZero(x);
      hn::Store(p, df, at);
      sum[j] = hn::Add(sum[j], p);
    }
  }
  for (size_t j = 0; j < kColumns; ++j) hn::Store(sum[j], df, state.sum + j * kLanes);
}

// o_panel[d][row] += V^T P^T. The V tile is [quad of head_dim][kTileKeys][4].
HWY_INLINE void AddValues(const float* HWY_RESTRICT v_quads, const float* HWY_RESTRICT p_panel, size_t keys,
                          size_t dim4, float* HWY_RESTRICT o_panel) {
  for (size_t d = 0; d < dim4; d += kQuad) {
    Accumulators acc;
#pragma GCC unroll 4
    for (size_t i = 0; i < kQuad; ++i)
#pragma GCC unroll 3
      for (size_t j = 0; j < kColumns; ++j) acc.c[i][j] = hn::Load(df, o_panel + (d + i) * kWidth + j * kLanes);
    AddOuterProducts(v_quads + d * kTileKeys, p_panel, keys, acc);
#pragma GCC unroll 4
    for (size_t i = 0; i < kQuad; ++i)
#pragma GCC unroll 3
      for (size_t j = 0; j < kColumns; ++j) hn::Store(acc.c[i][j], df, o_panel + (d + i) * kWidth + j * kLanes);
  }
}

// One panel against one K/V tile.
HWY_NOINLINE void PanelTile(const float* k_quads, const float* v_quads, size_t first_key, size_t dim4,
                            const float* q_panel, PanelState& state, float* o_panel, float* scores) {
  const size_t keys = RoundUp(std::min(kTileKeys, state.most_visible - first_key), kQuad);
  const bool masked = first_key + keys > state.least_visible;
  VF maximum[kColumns];
  ScoreTile(k_quads, q_panel, keys, dim4, scores, maximum);
  if (masked) MaskTile(state, first_key, keys, scores, maximum);
  bool rescale = false;
  for (size_t j = 0; j < kColumns; ++j)
    rescale |= AnyPasses(maximum[j], hn::Load(df, state.reference + j * kLanes));
  if (rescale) RescalePanel(maximum, dim4, state, o_panel);
  if (masked) {
    ExponentiateTile<true>(keys, state, scores);
  } else {
    ExponentiateTile<false>(keys, state, scores);
  }
  AddValues(v_quads, scores, keys, dim4, o_panel);
}

// ---- Panels: packing ------------------------------------------------------------------------------------------

// Transposes 4 x 4 within each block of four lanes: block b of result i holds lane 4 b + i of the four inputs.
HWY_INLINE void TransposeBlocks(VF (&r)[kQuad]) {
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

// Stores the first `blocks` blocks of four lanes, `stride` floats apart.
template <class D>
HWY_INLINE void StoreBlocks(D d, hn::Vec<D> x, float* to, size_t stride, size_t blocks) {
  if constexpr (hn::MaxLanes(D()) > kQuad) {
    const hn::Half<D> half;
    constexpr size_t kHalfBlocks = hn::MaxLanes(D()) / kQuad / 2;
    StoreBlocks(half, hn::LowerHalf(half, x), to, stride, blocks);
    if (HWY_LIKELY(blocks > kHalfBlocks))
      StoreBlocks(half, hn::UpperHalf(half, x), to + kHalfBlocks * stride, stride, blocks - kHalfBlocks);
  } else {
    hn::StoreU(x, d, to);
  }
}

// Four rows of `dim` numbers, times `factor` -> to[number][4], `stride` floats from number to number.
template <class T>
HWY_INLINE void InterleaveRows(const T* const (&rows)[kQuad], size_t dim, VF factor, size_t stride,
                               float* HWY_RESTRICT to) {
  const auto step = [&](size_t d, size_t count, size_t blocks) HWY_ATTR {
    VF r[kQuad];
    for (size_t i = 0; i < kQuad; ++i) r[i] = hn::Mul(LoadUpTo(df, rows[i] + d, count), factor);
    TransposeBlocks(r);
    for (size_t i = 0; i < kQuad; ++i) StoreBlocks(df, r[i], to + (d + i) * stride, kQuad * stride, blocks);
  };
  size_t d = 0;
  for (; d + kLanes <= dim; d += kLanes) step(d, kLanes, kLanes / kQuad);
  if (d < dim) step(d, dim - d, DivideUp(dim - d, kQuad));
}

// Asks for a row in the level-2 cache. Rows that lie 4 KiB apart share a few sets of the level-1 cache, where they
// would push each other out before they are read.
HWY_INLINE void FetchRow(const void* row, size_t bytes) {
  for (size_t i = 0; i < bytes; i += 64) __builtin_prefetch(static_cast<const char*>(row) + i, 0, 2);
}

// Packs one item of K as [key quad][head_dim][4] and of V as [tile][head_dim quad][kTileKeys][4], with zeros for the
// keys that fill the last quad. Rows of one head lie a page apart in the usual layout, hence the prefetch.
template <class T>
HWY_NOINLINE void PackKeysAndValues(const Problem& p, size_t kv_head, size_t begin, size_t dim4, float* k_packed,
                                    float* v_packed) {
  const std::vector<T> zeros(p.dim);
  const size_t end = std::min(p.keys, begin + kPackKeys);
  const auto row = [&](const void* base, const AttentionCpuStrides& s, size_t key) {
    return static_cast<const T*>(base) + p.KvOffset(s, kv_head, key);
  };
  for (size_t key = begin; key < end; key += kQuad) {
    const T *k[kQuad], *v[kQuad];
    for (size_t i = 0; i < kQuad; ++i) {
      k[i] = key + i < end ? row(p.args.k, p.args.k_strides, key + i) : zeros.data();
      v[i] = key + i < end ? row(p.args.v, p.args.v_strides, key + i) : zeros.data();
      const size_t ahead = std::min(key + kPrefetchKeys + i, end - 1);
      FetchRow(row(p.args.k, p.args.k_strides, ahead), p.dim * sizeof(T));
      FetchRow(row(p.args.v, p.args.v_strides, ahead), p.dim * sizeof(T));
    }
    InterleaveRows(k, p.dim, hn::Set(df, 1.0f), kQuad, k_packed + key * dim4);
    float* to = v_packed + (key / kTileKeys) * kTileKeys * dim4 + (key % kTileKeys) * kQuad;
    for (size_t d = 0; d < p.dim; d += kQuad)
      for (size_t i = 0; i < kQuad; ++i)
        hn::StoreU(LoadUpTo(d4, v[i] + d, p.dim - d), d4, to + d * kTileKeys + i * kQuad);
  }
}

// Panels end at the last row and the first one may start before row 0: under a causal mask the lanes that are wasted
// are then those with the fewest keys. Such lanes repeat row 0 and are not stored.
HWY_INLINE size_t PanelRow(int64_t first_row, size_t lane) {
  return static_cast<size_t>(std::max<int64_t>(0, first_row + static_cast<int64_t>(lane)));
}

// Packs a panel of query rows as [head_dim][row], times scale * log2(e) so that the softmax can use powers of two.
template <class T>
HWY_INLINE void PackQueries(const Problem& p, size_t kv_head, int64_t first_row, float* HWY_RESTRICT panel) {
  const T* rows[kWidth];
  for (size_t i = 0; i < kWidth; ++i) {
    const size_t source = PanelRow(first_row, i);
    rows[i] = static_cast<const T*>(p.args.q) + p.RowOffset(p.args.q_strides, kv_head, source);
    FetchRow(rows[i], p.dim * sizeof(T));
  }
  for (size_t i = 0; i < kWidth; i += kQuad) {
    const T* const quad[kQuad] = {rows[i], rows[i + 1], rows[i + 2], rows[i + 3]};
    InterleaveRows(quad, p.dim, hn::Set(df, p.args.scale * kLog2E), kWidth, panel + i);
  }
}

// Divides by the row sums and writes the rows of a panel.
template <class T>
HWY_INLINE void StorePanel(const Problem& p, size_t kv_head, int64_t first_row, size_t dim4, const PanelState& state,
                           const float* HWY_RESTRICT o_panel, float* HWY_RESTRICT rows) {
  const size_t padded = RoundUp(dim4, kLanes);
  for (size_t j = 0; j < kColumns; ++j) {
    const VF sum = hn::Load(df, state.sum + j * kLanes);
    const VF inverse = hn::IfThenZeroElse(hn::Eq(sum, hn::Zero(df)), hn::Div(hn::Set(df, 1.0f), sum));
    for (size_t d = 0; d < dim4; d += kQuad) {
      VF quad[kQuad];
      for (size_t i = 0; i < kQuad; ++i)
        quad[i] = hn::Mul(hn::Load(df, o_panel + (d + i) * kWidth + j * kLanes), inverse);
      TransposeBlocks(quad);
      for (size_t i = 0; i < kQuad; ++i)
        StoreBlocks(df, quad[i], rows + (j * kLanes + i) * padded + d, kQuad * padded, kLanes / kQuad);
    }
  }
  for (size_t i = first_row < 0 ? static_cast<size_t>(-first_row) : 0; i < kWidth; ++i) {
    const size_t row = PanelRow(first_row, i);
    T* to = static_cast<T*>(p.args.out) + p.RowOffset(p.args.out_strides, kv_head, row);
    WriteRow(rows + i * padded, p.dim, hn::Set(df, 1.0f), to);
    p.StoreLse(kv_head, row, state.reference[i], state.sum[i]);
  }
}

inline void StartPanel(const Problem& p, int64_t first_row, size_t dim4, PanelState& state, float* o_panel) {
  state.least_visible = p.keys;
  state.most_visible = 0;
  for (size_t i = 0; i < kWidth; ++i) {
    const size_t visible = p.VisibleKeys(PanelRow(first_row, i));
    state.reference[i] = kMinusInfinity;
    state.sum[i] = 0.0f;
    state.visible[i] = static_cast<int32_t>(visible);
    state.least_visible = std::min(state.least_visible, visible);
    state.most_visible = std::max(state.most_visible, visible);
  }
  memset(o_panel, 0, dim4 * kWidth * sizeof(float));
}

// Scratch of one thread, carved from the workspace.
struct PanelScratch {
  static size_t Floats(size_t dim4) {
    return 2 * kBlockPanels * dim4 * kWidth + kTileKeys * kWidth + kWidth * RoundUp(dim4, kLanes) + 64;
  }
  PanelScratch(float* at, size_t dim4) {
    q = at;
    o = q + kBlockPanels * dim4 * kWidth;
    scores = o + kBlockPanels * dim4 * kWidth;
    rows = scores + kTileKeys * kWidth;
  }
  float *q, *o, *scores, *rows;
  PanelState state[kBlockPanels];
};

// A block of panels against all keys it may see.
template <class T>
HWY_NOINLINE void QueryBlock(const Problem& p, size_t kv_head, int64_t first_row, size_t panels, size_t dim4,
                             const float* k_packed, const float* v_packed, PanelScratch& s) {
  const size_t panel_floats = dim4 * kWidth;
  size_t most_visible = 0;
  const auto row_of = [&](size_t panel) { return first_row + static_cast<int64_t>(panel * kWidth); };
  for (size_t i = 0; i < panels; ++i) {
    PackQueries<T>(p, kv_head, row_of(i), s.q + i * panel_floats);
    StartPanel(p, row_of(i), dim4, s.state[i], s.o + i * panel_floats);
    for (size_t lane = 0; lane < kWidth; ++lane)
      FetchRow(static_cast<const T*>(p.args.out) + p.RowOffset(p.args.out_strides, kv_head, PanelRow(row_of(i), lane)),
               p.dim * sizeof(T));
    most_visible = std::max(most_visible, s.state[i].most_visible);
  }
  for (size_t key = 0; key < most_visible; key += kTileKeys) {
    for (size_t i = 0; i < panels; ++i) {
      if (key >= s.state[i].most_visible) continue;
      PanelTile(k_packed + key * dim4, v_packed + key * dim4, key, dim4, s.q + i * panel_floats, s.state[i],
                s.o + i * panel_floats, s.scores);
    }
  }
  for (size_t i = 0; i < panels; ++i)
    StorePanel<T>(p, kv_head, row_of(i), dim4, s.state[i], s.o + i * panel_floats, s.rows);
}

// ---- Panels: scheduling ---------------------------------------------------------------------------------------

// Work comes from one queue taken in order: the packing of KV head 0, then for each KV head the packing of the next one
// followed by its own query blocks, so that packed heads are ready before they are needed. Packed heads are kept in a
// ring. An item waits only for items before it in the queue, which running threads have already taken, so every wait
// ends; there is no barrier.
template <class T>
void ForwardPanels(const Problem& p) {
  const size_t dim4 = RoundUp(p.dim, kQuad);
  const size_t panels = DivideUp(p.rows, kWidth);
  size_t block_panels = kBlockPanels;
  while (block_panels > 1 && DivideUp(panels, block_panels) * p.kv_heads < 4 * p.threads) block_panels /= 2;
  const size_t blocks = DivideUp(panels, block_panels);
  const size_t packs = DivideUp(p.keys, kPackKeys);
  const size_t per_head = packs + blocks;

  // Long blocks first, so that the last ones even out.
  std::vector<size_t> order(blocks);
  std::iota(order.begin(), order.end(), size_t{0});
  const int64_t row_zero = static_cast<int64_t>(p.rows) - static_cast<int64_t>(panels * kWidth);  // at most 0
  const auto last_row = [&](size_t block) {
    return PanelRow(row_zero, std::min(panels, (block + 1) * block_panels) * kWidth - 1);
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return p.VisibleKeys(last_row(a)) > p.VisibleKeys(last_row(b)); });

  const size_t ring = std::min(p.kv_heads, p.threads + 1);
  const size_t tensor_floats = RoundUp(RoundUp(p.keys, kTileKeys) * dim4, 64);
  const size_t scratch_floats = RoundUp(PanelScratch::Floats(dim4), 64);
  static thread_local Workspace workspace;
  float* const packed = workspace.Reserve(2 * ring * tensor_floats + p.threads * scratch_floats);
  float* const scratch = packed + 2 * ring * tensor_floats;

  std::vector<std::atomic<size_t>> packs_done(p.kv_heads), blocks_done(p.kv_heads);
  std::atomic<size_t> next{0};
#pragma omp parallel num_threads(static_cast<int>(p.threads))
  {
    PanelScratch s(scratch + static_cast<size_t>(omp_get_thread_num()) * scratch_floats, dim4);
    for (size_t item = next++; item < packs + per_head * p.kv_heads; item = next++) {
      // Item number -> KV head and either a packing item or a query block.
      const bool first_packs = item < packs;
      const size_t head = first_packs ? 0 : (item - packs) / per_head;
      const size_t index = first_packs ? item : (item - packs) % per_head;
      const bool packing = index < packs;
      const size_t kv_head = packing && !first_packs ? head + 1 : head;
      if (kv_head == p.kv_heads) continue;
      float* const k_packed = packed + (kv_head % ring) * 2 * tensor_floats;
      float* const v_packed = k_packed + tensor_floats;
      if (packing) {
        if (kv_head >= ring) WaitUntil([&] { return blocks_done[kv_head - ring].load() == blocks; });
        PackKeysAndValues<T>(p, kv_head, index * kPackKeys, dim4, k_packed, v_packed);
        ++packs_done[kv_head];
      } else {
        WaitUntil([&] { return packs_done[kv_head].load() == packs; });
        const size_t block = order[index - packs];
        const size_t count = std::min(block_panels, panels - block * block_panels);
        QueryBlock<T>(p, kv_head, row_zero + static_cast<int64_t>(block * block_panels * kWidth), count, dim4, k_packed,
                      v_packed, s);
        ++blocks_done[kv_head];
      }
    }
  }
}

// ---- Few rows -------------------------------------------------------------------------------------------------

// Four vectors -> their four sums of lanes.
template <class D>
HWY_INLINE hn::Vec<decltype(d4)> SumBlocks(HWY_MAYBE_UNUSED D d, hn::Vec<D> x) {
  if constexpr (hn::MaxLanes(D()) > kQuad) {
    const hn::Half<D> dh;
    return SumBlocks(dh, hn::Add(hn::LowerHalf(dh, x), hn::UpperHalf(dh, x)));
  } else {
    return x;
  }
}
HWY_INLINE hn::Vec<decltype(d4)> FourSums(VF a, VF b, VF c, VF d) {
  const hn::RepartitionToWide<DI> d64;
  const VF ab = hn::Add(hn::InterleaveLower(df, a, b), hn::InterleaveUpper(df, a, b));  // a0+a2 b0+b2 a1+a3 b1+b3
  const VF cd = hn::Add(hn::InterleaveLower(df, c, d), hn::InterleaveUpper(df, c, d));
  const auto ab64 = hn::BitCast(d64, ab), cd64 = hn::BitCast(d64, cd);
  return SumBlocks(df, hn::Add(hn::BitCast(df, hn::InterleaveLower(d64, ab64, cd64)),
                               hn::BitCast(df, hn::InterleaveUpper(d64, ab64, cd64))));
}

// Keeps a loaded vector in its register. Without this GCC turns a vector used twice into two memory operands, and the
// loops below, which need almost as many loads as multiply-adds, wait for the load ports.
HWY_INLINE VF InRegister(VF x) {
#if HWY_ARCH_X86 && HWY_COMPILER_GCC
  asm("" : "+x"(x.raw));
#endif
  return x;
}

// scores[key][4 rows] for two keys, whose rows have `padded` numbers.
template <class T>
HWY_INLINE void ScoreTwoKeys(const T* HWY_RESTRICT k0, const T* HWY_RESTRICT k1, const float* HWY_RESTRICT q,
                             size_t padded, float* HWY_RESTRICT scores) {
  VF a0 = hn::Zero(df), a1 = a0, a2 = a0, a3 = a0, b0 = a0, b1 = a0, b2 = a0, b3 = a0;
  for (size_t d = 0; d < padded; d += kLanes) {
    const VF x = InRegister(LoadFloats(df, k0 + d)), y = InRegister(LoadFloats(df, k1 + d));
    const VF q0 = InRegister(hn::Load(df, q + d)), q1 = InRegister(hn::Load(df, q + padded + d));
    a0 = hn::MulAdd(x, q0, a0), b0 = hn::MulAdd(y, q0, b0);
    a1 = hn::MulAdd(x, q1, a1), b1 = hn::MulAdd(y, q1, b1);
    const VF q2 = InRegister(hn::Load(df, q + 2 * padded + d)), q3 = InRegister(hn::Load(df, q + 3 * padded + d));
    a2 = hn::MulAdd(x, q2, a2), b2 = hn::MulAdd(y, q2, b2);
    a3 = hn::MulAdd(x, q3, a3), b3 = hn::MulAdd(y, q3, b3);
  }
  hn::Store(FourSums(a0, a1, a2, a3), d4, scores);
  hn::Store(FourSums(b0, b1, b2, b3), d4, scores + kQuad);
}

// out[row] += sum over four keys of p[key][row] * v[key], two rows at a time so that p stays in registers.
HWY_INLINE void AddFourValues(const float* const (&v)[kQuad], const float* HWY_RESTRICT p, size_t padded,
                              float* HWY_RESTRICT out) {
  for (size_t row = 0; row < kQuad; row += 2) {
    const VF p00 = hn::Set(df, p[row]), p01 = hn::Set(df, p[row + 1]);
    const VF p10 = hn::Set(df, p[4 + row]), p11 = hn::Set(df, p[5 + row]);
    const VF p20 = hn::Set(df, p[8 + row]), p21 = hn::Set(df, p[9 + row]);
    const VF p30 = hn::Set(df, p[12 + row]), p31 = hn::Set(df, p[13 + row]);
    float* HWY_RESTRICT out0 = out + row * padded;
    float* HWY_RESTRICT out1 = out0 + padded;
    for (size_t d = 0; d < padded; d += kLanes) {
      VF o0 = hn::Load(df, out0 + d), o1 = hn::Load(df, out1 + d), x = InRegister(hn::LoadU(df, v[0] + d));
      o0 = hn::MulAdd(x, p00, o0), o1 = hn::MulAdd(x, p01, o1), x = InRegister(hn::LoadU(df, v[1] + d));
      o0 = hn::MulAdd(x, p10, o0), o1 = hn::MulAdd(x, p11, o1), x = InRegister(hn::LoadU(df, v[2] + d));
      o0 = hn::MulAdd(x, p20, o0), o1 = hn::MulAdd(x, p21, o1), x = InRegister(hn::LoadU(df, v[3] + d));
      o0 = hn::MulAdd(x, p30, o0), o1 = hn::MulAdd(x, p31, o1);
      hn::Store(o0, df, out0 + d);
      hn::Store(o1, df, out1 + d);
    }
  }
}

// A key's row as floats: in place when it is one already, else converted into `buffer`.
template <class T>
HWY_INLINE const float* FloatRow(const T* row, size_t dim, size_t padded, float* buffer) {
  if constexpr (std::is_same_v<T, float>) {
    if (dim == padded) return row;
  }
  ReadRow(row, dim, padded, buffer);
  return buffer;
}

// Four rows of one KV head (fewer: the others are zero) and their running softmax over a chunk of keys.
struct FewRowsUnit {
  HWY_ALIGN float reference[kQuad];
  HWY_ALIGN float sum[kQuad];
  size_t visible[kQuad];
  size_t most_visible;
  float *q, *out;  // [4][padded]
};

// Lane i of the result holds the maximum of the lanes of row i % 4.
HWY_INLINE VF MaxOverBlocks(VF x) {
  HWY_ALIGN float lanes[kLanes];
  hn::Store(x, df, lanes);
  auto m = hn::Load(d4, lanes);
  for (size_t i = kQuad; i < kLanes; i += kQuad) m = hn::Max(m, hn::Load(d4, lanes + i));
  hn::Store(m, d4, lanes);
  return hn::LoadDup128(df, lanes);
}

// scores[key][4 rows] -> powers, for a step of keys; rescales the output where the reference moves.
HWY_INLINE void ExponentiateStep(size_t padded, FewRowsUnit& unit, float* HWY_RESTRICT scores) {
  VF maximum = hn::Set(df, kMinusInfinity);
  for (size_t i = 0; i < kStepKeys * kQuad; i += kLanes) maximum = hn::Max(hn::Load(df, scores + i), maximum);
  maximum = MaxOverBlocks(maximum);
  VF reference = hn::LoadDup128(df, unit.reference);
  if (AnyPasses(maximum, reference)) {
    HWY_ALIGN float factor[kLanes];
    HWY_ALIGN float moved[kLanes];
    hn::Store(MoveReference(maximum, reference), df, factor);
    hn::Store(reference, df, moved);
    for (size_t row = 0; row < kQuad; ++row) {
      unit.reference[row] = moved[row];
      unit.sum[row] *= factor[row];
      const VF f = hn::Set(df, factor[row]);
      for (size_t d = 0; d < padded; d += kLanes)
        hn::Store(hn::Mul(hn::Load(df, unit.out + row * padded + d), f), df, unit.out + row * padded + d);
    }
  }
  const VF finite = FiniteReference(reference);
  VF sum = hn::Zero(df);
  for (size_t i = 0; i < kStepKeys * kQuad; i += kLanes) {
    const VF p = PowerOfTwoOrZero(hn::Sub(hn::Load(df, scores + i), finite));
    hn::Store(p, df, scores + i);
    sum = hn::Add(sum, p);
  }
  HWY_ALIGN float lanes[kLanes];
  hn::Store(sum, df, lanes);
  for (size_t i = 0; i < kLanes; ++i) unit.sum[i % kQuad] += lanes[i];
}

// Fetches rows of the next step, for all KV heads of a batch entry, in the order in which they lie in memory when the
// heads of a key are neighbours: one row for each row that the current step reads.
template <class T>
struct FetchAhead {
  HWY_INLINE void Row(const T* base, const AttentionCpuStrides& s, size_t entry) const {
    const size_t key = first_key + entry / heads, head = entry % heads;
    if (key < keys) FetchRow(base + static_cast<int64_t>(key) * s.row + static_cast<int64_t>(head) * s.head, row_bytes);
  }
  const T *k, *v;  // of the batch entry
  size_t first_key, keys, heads, row_bytes;
};

// One unit against the keys [begin, end), at most kStepKeys. `entry` numbers its first row within the step.
template <class T>
HWY_NOINLINE void FewRowsStep(const Problem& p, size_t kv_head, size_t begin, size_t end, const FetchAhead<T>& ahead,
                              size_t entry, size_t padded, FewRowsUnit& unit, float* HWY_RESTRICT buffer) {
  HWY_ALIGN float scores[kStepKeys * kQuad];
  const T* k = static_cast<const T*>(p.args.k) + p.KvOffset(p.args.k_strides, kv_head, begin);
  const T* v = static_cast<const T*>(p.args.v) + p.KvOffset(p.args.v_strides, kv_head, begin);
  const size_t count = end - begin;
  const auto k_row = [&](size_t i) { return k + static_cast<int64_t>(std::min(i, count - 1)) * p.args.k_strides.row; };
  const auto v_row = [&](size_t i) { return v + static_cast<int64_t>(std::min(i, count - 1)) * p.args.v_strides.row; };
  for (size_t i = 0; i < count; i += 2) {
    ahead.Row(ahead.k, p.args.k_strides, entry + i);
    ahead.Row(ahead.k, p.args.k_strides, entry + i + 1);
    if (p.dim == padded) {
      ScoreTwoKeys(k_row(i), k_row(i + 1), unit.q, padded, scores + i * kQuad);
    } else {
      ReadRow(k_row(i), p.dim, padded, buffer);
      ReadRow(k_row(i + 1), p.dim, padded, buffer + padded);
      ScoreTwoKeys(buffer, buffer + padded, unit.q, padded, scores + i * kQuad);
    }
  }
  for (size_t row = 0; row < kQuad; ++row) {
    const size_t seen = unit.visible[row] > begin ? std::min(unit.visible[row] - begin, count) : 0;
    for (size_t i = seen; i < kStepKeys; ++i) scores[i * kQuad + row] = kMinusInfinity;
  }
  ExponentiateStep(padded, unit, scores);
  for (size_t i = 0; i < count; i += kQuad) {
    const float* rows[kQuad];
    for (size_t j = 0; j < kQuad; ++j) {
      ahead.Row(ahead.v, p.args.v_strides, entry + i + j);
      rows[j] = FloatRow(v_row(i + j), p.dim, padded, buffer + j * padded);
    }
    AddFourValues(rows, scores + i * kQuad, padded, unit.out);
  }
}

// The units of all KV heads of one batch entry, [kv head][four rows].
template <class T>
void StartUnits(const Problem& p, size_t batch, size_t padded, std::vector<FewRowsUnit>& units, float* memory) {
  const size_t per_head = DivideUp(p.rows, kQuad), heads = static_cast<size_t>(p.args.kv_heads);
  const VF factor = hn::Set(df, p.args.scale * kLog2E);
  units.resize(heads * per_head);
  for (size_t u = 0; u < units.size(); ++u) {
    FewRowsUnit& unit = units[u];
    unit.q = memory + u * 2 * kQuad * padded;
    unit.out = unit.q + kQuad * padded;
    unit.most_visible = 0;
    memset(unit.q, 0, 2 * kQuad * padded * sizeof(float));
    for (size_t i = 0; i < kQuad; ++i) {
      const size_t row = u % per_head * kQuad + i;
      unit.reference[i] = kMinusInfinity, unit.sum[i] = 0.0f, unit.visible[i] = 0;
      if (row >= p.rows) continue;
      unit.visible[i] = p.VisibleKeys(row);
      unit.most_visible = std::max(unit.most_visible, unit.visible[i]);
      const size_t kv_head = batch * heads + u / per_head;
      const T* from = static_cast<const T*>(p.args.q) + p.RowOffset(p.args.q_strides, kv_head, row);
      float* q = unit.q + i * padded;
      ReadRow(from, p.dim, padded, q);
      for (size_t d = 0; d < padded; d += kLanes) hn::Store(hn::Mul(hn::Load(df, q + d), factor), df, q + d);
    }
  }
}

// One item: all KV heads of a batch entry over one chunk of keys, step by step, so that a page that holds the rows of
// several heads is read while it is near. `partial` gets [kv head][row](output, reference, sum), not yet normalised.
template <class T>
void FewRowsItem(const Problem& p, size_t batch, size_t begin, size_t padded, std::vector<FewRowsUnit>& units,
                 float* memory, float* partial, size_t head_floats) {
  const size_t per_head = DivideUp(p.rows, kQuad), heads = static_cast<size_t>(p.args.kv_heads);
  const size_t end = std::min(p.keys, begin + kChunkKeys);
  StartUnits<T>(p, batch, padded, units, memory);
  float* const buffer = memory + units.size() * 2 * kQuad * padded;
  for (size_t step = begin; step < end; step += kStepKeys) {
    const FetchAhead<T> ahead = {static_cast<const T*>(p.args.k) + p.KvOffset(p.args.k_strides, batch * heads, 0),
                                 static_cast<const T*>(p.args.v) + p.KvOffset(p.args.v_strides, batch * heads, 0),
                                 step + kStepKeys, end, heads, p.dim * sizeof(T)};
    for (size_t u = 0; u < units.size(); ++u) {
      const size_t stop = std::min({end, step + kStepKeys, units[u].most_visible});
      if (stop <= step) continue;
      const size_t head = u / per_head;
      FewRowsStep<T>(p, batch * heads + head, step, stop, ahead, head * kStepKeys, padded, units[u], buffer);
    }
  }
  for (size_t head = 0; head < heads; ++head) {
    for (size_t row = 0; row < p.rows; ++row) {
      const FewRowsUnit& unit = units[head * per_head + row / kQuad];
      float* to = partial + head * head_floats + row * (padded + 2);
      memcpy(to, unit.out + row % kQuad * padded, padded * sizeof(float));
      to[padded] = unit.reference[row % kQuad];
      to[padded + 1] = unit.sum[row % kQuad];
    }
  }
}

// Merges the chunks of one row in order.
template <class T>
void MergeChunks(const Problem& p, size_t kv_head, size_t row, size_t chunks, size_t padded, const float* partial,
                 size_t chunk_floats, float* out) {
  float reference = kMinusInfinity, sum = 0.0f;
  for (size_t c = 0; c < chunks; ++c) reference = std::max(reference, partial[c * chunk_floats + padded]);
  memset(out, 0, padded * sizeof(float));
  for (size_t c = 0; c < chunks; ++c) {
    const float* from = partial + c * chunk_floats;
    if (from[padded + 1] == 0.0f) continue;
    const float weight = std::exp2(from[padded] - reference);
    sum += weight * from[padded + 1];
    for (size_t d = 0; d < padded; d += kLanes)
      hn::Store(hn::MulAdd(hn::Set(df, weight), hn::LoadU(df, from + d), hn::Load(df, out + d)), df, out + d);
  }
  const VF inverse = hn::Set(df, sum == 0.0f ? 0.0f : 1.0f / sum);
  WriteRow(out, p.dim, inverse, static_cast<T*>(p.args.out) + p.RowOffset(p.args.out_strides, kv_head, row));
  p.StoreLse(kv_head, row, reference, sum);
}

template <class T>
void ForwardFewRows(const Problem& p) {
  const size_t padded = RoundUp(p.dim, kLanes);
  const size_t chunks = std::max<size_t>(1, DivideUp(p.keys, kChunkKeys));
  const size_t batches = static_cast<size_t>(p.args.batch), heads = static_cast<size_t>(p.args.kv_heads);
  const size_t chunk_floats = p.rows * (padded + 2), head_floats = chunks * chunk_floats;
  const size_t scratch_floats = RoundUp((heads * DivideUp(p.rows, kQuad) * 2 + 1) * kQuad * padded, 64);
  static thread_local Workspace workspace;
  float* const scratch = workspace.Reserve(p.threads * scratch_floats + p.kv_heads * head_floats);
  float* const partial = scratch + p.threads * scratch_floats;  // [batch][kv head][chunk][row](output, reference, sum)
#pragma omp parallel num_threads(static_cast<int>(p.threads))
  {
    float* const mine = scratch + static_cast<size_t>(omp_get_thread_num()) * scratch_floats;
    std::vector<FewRowsUnit> units;
#pragma omp for schedule(dynamic)
    for (size_t item = 0; item < batches * chunks; ++item) {
      const size_t batch = item / chunks, chunk = item % chunks;
      FewRowsItem<T>(p, batch, chunk * kChunkKeys, padded, units, mine,
                     partial + batch * heads * head_floats + chunk * chunk_floats, head_floats);
    }
#pragma omp for schedule(static)
    for (size_t i = 0; i < p.kv_heads * p.rows; ++i) {
      const size_t kv_head = i / p.rows, row = i % p.rows;
      MergeChunks<T>(p, kv_head, row, chunks, padded, partial + kv_head * head_floats + row * (padded + 2),
                     chunk_floats, mine);
    }
  }
}

// ---- Entry points ---------------------------------------------------------------------------------------------

template <class T>
void Forward(const Problem& p) {
  if (p.rows <= kFewRows) {
    ForwardFewRows<T>(p);
  } else {
    ForwardPanels<T>(p);
  }
}

void ForwardAnyType(const AttentionCpuArgs& args) {
  const Problem p(args);
  if (args.type == kAttentionCpuFloat32) Forward<float>(p);
  if (args.type == kAttentionCpuBfloat16) Forward<hwy::bfloat16_t>(p);
  if (args.type == kAttentionCpuFloat16) Forward<hwy::float16_t>(p);
}

// Multiply-adds with nothing to load: the arithmetic ceiling. Returns floating-point operations. The twelve chains
// start from different numbers, or the compiler would find them equal and keep one.
double FmaRound(float seed) {
  constexpr size_t kRounds = 200000;
  const VF b = hn::Set(df, 0.999f), a = hn::Set(df, seed);
  VF c0 = a, c1 = hn::Add(c0, b), c2 = hn::Add(c1, b), c3 = hn::Add(c2, b), c4 = hn::Add(c3, b), c5 = hn::Add(c4, b),
     c6 = hn::Add(c5, b), c7 = hn::Add(c6, b), c8 = hn::Add(c7, b), c9 = hn::Add(c8, b), c10 = hn::Add(c9, b),
     c11 = hn::Add(c10, b);
  for (size_t i = 0; i < kRounds; ++i) {
    c0 = hn::MulAdd(c0, b, a), c1 = hn::MulAdd(c1, b, a), c2 = hn::MulAdd(c2, b, a), c3 = hn::MulAdd(c3, b, a);
    c4 = hn::MulAdd(c4, b, a), c5 = hn::MulAdd(c5, b, a), c6 = hn::MulAdd(c6, b, a), c7 = hn::MulAdd(c7, b, a);
    c8 = hn::MulAdd(c8, b, a), c9 = hn::MulAdd(c9, b, a), c10 = hn::MulAdd(c10, b, a), c11 = hn::MulAdd(c11, b, a);
  }
  const VF all = hn::Add(hn::Add(hn::Add(hn::Add(c0, c1), hn::Add(c2, c3)), hn::Add(hn::Add(c4, c5), hn::Add(c6, c7))),
                         hn::Add(hn::Add(c8, c9), hn::Add(c10, c11)));
  volatile float keep = hn::GetLane(all);
  (void)keep;
  return 24.0 * kLanes * kRounds;
}

// Reads a buffer once in several streams; returns bytes.
double ReadRound(const float* data, size_t floats) {
  VF c0 = hn::Zero(df), c1 = c0, c2 = c0, c3 = c0;
  for (size_t i = 0; i + 4 * kLanes <= floats; i += 4 * kLanes) {
    c0 = hn::Add(c0, hn::Load(df, data + i));
    c1 = hn::Add(c1, hn::Load(df, data + i + kLanes));
    c2 = hn::Add(c2, hn::Load(df, data + i + 2 * kLanes));
    c3 = hn::Add(c3, hn::Load(df, data + i + 3 * kLanes));
  }
  volatile float keep = hn::GetLane(hn::Add(hn::Add(c0, c1), hn::Add(c2, c3)));
  (void)keep;
  return static_cast<double>(floats) * sizeof(float);
}

const char* TargetName() { return hwy::TargetName(HWY_TARGET); }

}  // namespace HWY_NAMESPACE
}  // namespace attention_cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attention_cpu {
namespace {

HWY_EXPORT(ForwardAnyType);
HWY_EXPORT(FmaRound);
HWY_EXPORT(ReadRound);
HWY_EXPORT(TargetName);

bool Takes(const AttentionCpuArgs& a) {
  return a.batch > 0 && a.heads > 0 && a.kv_heads > 0 && a.heads % a.kv_heads == 0 && a.queries > 0 && a.keys >= 0 &&
         a.keys < (int64_t{1} << 31) - 4096 && a.head_dim > 0 && a.type >= 0 && a.type <= 2;
}

// The dispatch macro takes a bare name, in the namespace of its table.
void DispatchForward(const AttentionCpuArgs& args) { HWY_DYNAMIC_DISPATCH(ForwardAnyType)(args); }
const char* DispatchTargetName() { return HWY_DYNAMIC_DISPATCH(TargetName)(); }
double DispatchFmaRound() { return HWY_DYNAMIC_DISPATCH(FmaRound)(1.0f); }
double DispatchReadRound(const float* data, size_t floats) { return HWY_DYNAMIC_DISPATCH(ReadRound)(data, floats); }

// Rate of `round` over all threads for about `seconds`.
template <class Round>
double Rate(int threads, double seconds, Round round) {
  double total = 0.0;
  const auto start = std::chrono::steady_clock::now();
  const auto elapsed = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
#pragma omp parallel num_threads(threads) reduction(+ : total)
  {
    while (elapsed() < seconds) total += round(omp_get_thread_num());
  }
  return total / elapsed() * 1e-9;
}

}  // namespace
}  // namespace attention_cpu

extern "C" int attention_cpu_forward(const AttentionCpuArgs* args) {
  if (!args || !attention_cpu::Takes(*args)) return 1;
  attention_cpu::DispatchForward(*args);
  return 0;
}

extern "C" const char* attention_cpu_target(void) { return attention_cpu::DispatchTargetName(); }

extern "C" void attention_cpu_limit_targets(int64_t mask) { hwy::SetSupportedTargetsForTest(mask); }

extern "C" double attention_cpu_fma_gflops(int threads, double seconds) {
  return attention_cpu::Rate(threads, seconds, [](int) { return attention_cpu::DispatchFmaRound(); });
}

extern "C" double attention_cpu_read_gbytes(int threads, double seconds) {
  constexpr size_t kFloats = size_t{32} << 20;  // 128 MiB a thread, well beyond the caches
  const auto data = hwy::AllocateAligned<float>(kFloats * static_cast<size_t>(threads));
  std::fill(data.get(), data.get() + kFloats * static_cast<size_t>(threads), 1.0f);
  return attention_cpu::Rate(threads, seconds, [&](int thread) {
    return attention_cpu::DispatchReadRound(data.get() + kFloats * static_cast<size_t>(thread), kFloats);
  });
}
#endif  // HWY_ONCE
