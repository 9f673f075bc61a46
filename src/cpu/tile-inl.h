// One panel of rows against one tile of keys.

#include <hwy/highway.h>

#if defined(PARAPET_CPU_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PARAPET_CPU_TILE_INL_H_
#undef PARAPET_CPU_TILE_INL_H_
#else
#define PARAPET_CPU_TILE_INL_H_
#endif

#include "cpu/packing-inl.h"
#include "cpu/softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace parapet::cpu::HWY_NAMESPACE {

// A panel's rows and their running softmax: a lane is a row, a column is a vector of lanes.
struct Panel {
  HWY_ALIGN float reference[kWidth];
  HWY_ALIGN float sum[kWidth];
  float* q;    // [dim][row]
  float* out;  // [dim][row]

  int64 first_row;     // of the head
  int64 first_lane;    // lanes before it are padding
  int64 first_column;  // columns before it hold nothing but padding
  Range visible[kWidth];
  Range seen_by_any[kColumns];  // hull of the keys that the rows of a column see
  Range seen_by_all[kColumns];  // empty or negative when there is none
  Range keys;                   // hull over all columns
};

struct PackedTile {
  PackedTile(const api::Problem& problem, const Packed& packed, int64 tile)
      : keys{tile, plan::min(tile + kTileKeys, packed.keys.end)},
        k(packed_keys(packed, tile, problem.head_dim)),
        v(packed_values(packed, tile, problem.head_dim_v)),
        k_stride(plan::round_up(problem.head_dim, kBlock)),
        v_stride(packed_tile_keys(packed, tile)),
        finite(packed_check(packed, tile) == 0.0f) {}

  Range keys;
  const float* k;  // [group of keys][k_stride dims][key]
  const float* v;  // [group of dims][v_stride keys][dim]
  int64 k_stride;
  int64 v_stride;
  bool finite;  // all of v
};

// A part of a tile: whole groups of keys, with the columns that see some of them.
struct Piece {
  int64 begin;  // of keys
  int64 end;
  int64 first_column;
  int64 columns;
  bool masked;  // some row of these columns does not see some key
};

// The columns that see some of the group of keys that begins with `key`. What columns see never
// decreases from one to the next, so they are neighbours.
HWY_INLINE Piece piece_at(const Panel& panel, int64 key) {
  const int64 key_end = key + kGroup;
  int64 first = panel.first_column, end = kColumns;
  while (first < end && panel.seen_by_any[first].end <= key) ++first;
  while (first < end && panel.seen_by_any[end - 1].begin >= key_end) --end;
  const bool masked = first < end && (panel.seen_by_all[end - 1].begin > key ||
                                      panel.seen_by_all[first].end < key_end);
  return {key, key_end, first, end - first, masked};
}

// Scores of the columns in use: [key][row] = K Q^T. Also the largest one of each row.
template <int64 kUsed>
HWY_INLINE void score(const api::Problem& problem, const PackedTile& tile, const Panel& panel,
                      const Piece& piece, float* HWY_RESTRICT scores, VF (&maximum)[kUsed]) {
  const float* q = panel.q + piece.first_column * kLanes;
  const float* k = tile.k + (piece.begin - tile.keys.begin) * tile.k_stride;
  for (VF& m : maximum) m = hn::Set(df, kMinusInfinity);
  for (int64 key = piece.begin; key < piece.end; key += kGroup) {
    Accumulators<kUsed> sums;
    for (auto& row : sums) {
      for (VF& sum : row) sum = hn::Zero(df);
    }
    add_outer_products<kUsed>(k, q, problem.head_dim, sums);
    for (int64 i = 0; i < kGroup; ++i) {
      for (int64 j = 0; j < kUsed; ++j) {
        hn::Store(sums[i][j], df, scores + i * kWidth + j * kLanes);
        maximum[j] = hn::Max(sums[i][j], maximum[j]);
      }
    }
    k += kGroup * tile.k_stride;
    scores += kGroup * kWidth;
  }
}

template <int64 kUsed>
HWY_NOINLINE void cap_scores(const Scores& how, int64 keys, float* HWY_RESTRICT scores,
                             VF (&maximum)[kUsed]) {
  for (int64 key = 0; key < keys; ++key) {
    for (int64 j = 0; j < kUsed; ++j) {
      float* at = scores + key * kWidth + j * kLanes;
      hn::Store(cap(how, hn::Load(df, at)), df, at);
    }
  }
  for (VF& m : maximum) m = cap(how, m);
}

// Hides the keys that a row does not see and finds the largest scores again.
template <int64 kUsed>
HWY_NOINLINE void mask_scores(const Panel& panel, const Piece& piece, float* HWY_RESTRICT scores,
                              VF (&maximum)[kUsed]) {
  const int64 keys = piece.end - piece.begin;
  for (int64 j = 0; j < kUsed; ++j) {
    HWY_ALIGN std::int32_t begin[kLanes], end[kLanes];  // relative to the piece
    const Range* visible = panel.visible + (piece.first_column + j) * kLanes;
    for (int64 lane = 0; lane < kLanes; ++lane) {
      begin[lane] =
          static_cast<std::int32_t>(plan::clamp(visible[lane].begin - piece.begin, int64{0}, keys));
      end[lane] =
          static_cast<std::int32_t>(plan::clamp(visible[lane].end - piece.begin, int64{0}, keys));
    }
    const auto first = hn::Load(di, begin), past = hn::Load(di, end);
    maximum[j] = hn::Set(df, kMinusInfinity);
    for (int64 key = 0; key < keys; ++key) {
      const auto number = hn::Set(di, static_cast<std::int32_t>(key));
      const auto hidden = hn::Or(hn::Lt(number, first), hn::Not(hn::Lt(number, past)));
      float* at = scores + key * kWidth + j * kLanes;
      const VF s =
          hn::IfThenElse(hn::RebindMask(df, hidden), hn::Set(df, kMinusInfinity), hn::Load(df, at));
      hn::Store(s, df, at);
      maximum[j] = hn::Max(s, maximum[j]);
    }
  }
}

// Moves the references that `maximum` passes, and scales what was summed. Rare after the first
// tile.
template <int64 kUsed>
HWY_NOINLINE void move_references(const VF (&maximum)[kUsed], int64 dim_v, int64 first_column,
                                  Panel& panel) {
  VF factor[kUsed];
  for (int64 j = 0; j < kUsed; ++j) {
    const int64 lane = (first_column + j) * kLanes;
    VF reference = hn::Load(df, panel.reference + lane);
    factor[j] = move_reference(maximum[j], reference);
    hn::Store(reference, df, panel.reference + lane);
    hn::Store(hn::Mul(hn::Load(df, panel.sum + lane), factor[j]), df, panel.sum + lane);
  }
  for (int64 d = 0; d < dim_v; ++d) {
    for (int64 j = 0; j < kUsed; ++j) {
      float* at = panel.out + d * kWidth + (first_column + j) * kLanes;
      hn::Store(scale_sum(hn::Load(df, at), factor[j]), df, at);
    }
  }
}

template <int64 kUsed>
HWY_NOINLINE void scale_scores(VF factor, int64 keys, float* HWY_RESTRICT scores) {
  for (int64 key = 0; key < keys; ++key) {
    for (int64 j = 0; j < kUsed; ++j) {
      float* at = scores + key * kWidth + j * kLanes;
      hn::Store(hn::Mul(hn::Load(df, at), factor), df, at);
    }
  }
}

// Scores -> weights, added to the rows' sums.
template <int64 kUsed, bool kAboveZero>
HWY_INLINE void exponentiate(const Scores& how, int64 keys, int64 first_column, Panel& panel,
                             float* HWY_RESTRICT scores) {
  VF factor = hn::Set(df, how.factor);
  VF reference[kUsed], sum[kUsed];
  bool coarse = false;
  for (int64 j = 0; j < kUsed; ++j) {
    const int64 lane = (first_column + j) * kLanes;
    reference[j] = finite_reference(df, hn::Load(df, panel.reference + lane));
    sum[j] = hn::Load(df, panel.sum + lane);
    coarse |= is_coarse(reference[j]);
  }
  if (HWY_UNLIKELY(coarse)) {
    scale_scores<kUsed>(factor, keys, scores);
    factor = hn::Set(df, 1.0f);
  }
  for (int64 key = 0; key < keys; ++key) {
    for (int64 j = 0; j < kUsed; ++j) {
      float* at = scores + key * kWidth + j * kLanes;
      const VF p = weight<kAboveZero>(hn::Load(df, at), factor, reference[j]);
      hn::Store(p, df, at);
      sum[j] = hn::Add(sum[j], p);
    }
  }
  for (int64 j = 0; j < kUsed; ++j) {
    hn::Store(sum[j], df, panel.sum + (first_column + j) * kLanes);
  }
}

// out[dim][row] += V^T P^T.
template <int64 kUsed>
HWY_INLINE void add_values(const PackedTile& tile, const Piece& piece, int64 dim_v,
                           const float* HWY_RESTRICT weights, Panel& panel) {
  const float* v = tile.v + (piece.begin - tile.keys.begin) * kGroup;
  float* out = panel.out + piece.first_column * kLanes;
  for (int64 d = 0; d < dim_v; d += kGroup) {
    Accumulators<kUsed> sums;
    for (int64 i = 0; i < kGroup; ++i) {
      for (int64 j = 0; j < kUsed; ++j) {
        sums[i][j] = hn::Load(df, out + i * kWidth + j * kLanes);
      }
    }
    add_outer_products<kUsed>(v, weights, piece.end - piece.begin, sums);
    for (int64 i = 0; i < kGroup; ++i) {
      for (int64 j = 0; j < kUsed; ++j) {
        hn::Store(sums[i][j], df, out + i * kWidth + j * kLanes);
      }
    }
    v += tile.v_stride * kGroup;
    out += kGroup * kWidth;
  }
}

// The same where values may be infinite or NaN: a hidden key's value is not even multiplied by
// zero.
template <int64 kUsed>
HWY_NOINLINE void add_visible_values(const PackedTile& tile, const Piece& piece, int64 dim_v,
                                     const float* HWY_RESTRICT weights, Panel& panel) {
  for (int64 d = 0; d < dim_v; ++d) {
    const float* v = tile.v + d / kGroup * tile.v_stride * kGroup + d % kGroup +
                     (piece.begin - tile.keys.begin) * kGroup;
    for (int64 j = 0; j < kUsed; ++j) {
      float* out = panel.out + d * kWidth + (piece.first_column + j) * kLanes;
      VF sum = hn::Load(df, out);
      for (int64 key = 0; key < piece.end - piece.begin; ++key) {
        const VF p = hn::Load(df, weights + key * kWidth + j * kLanes);
        const VF added = hn::MulAdd(hn::Set(df, v[key * kGroup]), p, sum);
        sum = hn::IfThenElse(hn::Eq(p, hn::Zero(df)), sum, added);
      }
      hn::Store(sum, df, out);
    }
  }
}

template <int64 kUsed>
HWY_NOINLINE void run_piece(const api::Problem& problem, const PackedTile& tile, const Piece& piece,
                            Panel& panel, float* HWY_RESTRICT scores) {
  const Scores how(problem);
  const int64 keys = piece.end - piece.begin, first = piece.first_column;
  VF maximum[kUsed];
  score<kUsed>(problem, tile, panel, piece, scores, maximum);
  if (how.capped()) cap_scores<kUsed>(how, keys, scores, maximum);
  if (piece.masked) mask_scores<kUsed>(panel, piece, scores, maximum);
  bool moves = false;
  for (int64 j = 0; j < kUsed; ++j) {
    maximum[j] = hn::Mul(maximum[j], hn::Set(df, how.factor));
    const VF reference = hn::Load(df, panel.reference + (first + j) * kLanes);
    moves |= !hn::AllFalse(df, hn::Gt(maximum[j], reference));
  }
  if (moves) move_references<kUsed>(maximum, problem.head_dim_v, first, panel);
  if (HWY_LIKELY(tile.finite)) {
    exponentiate<kUsed, false>(how, keys, first, panel, scores);
    add_values<kUsed>(tile, piece, problem.head_dim_v, scores, panel);
  } else {
    exponentiate<kUsed, true>(how, keys, first, panel, scores);
    add_visible_values<kUsed>(tile, piece, problem.head_dim_v, scores, panel);
  }
}

// One panel against one tile, in pieces: usually one, more where the panel's columns see different
// keys. Keys and columns without a visible pair are left out.
HWY_INLINE void run_tile(const api::Problem& problem, const PackedTile& tile, Panel& panel,
                         float* HWY_RESTRICT scores) {
  if (tile.keys.begin >= panel.keys.end || tile.keys.end <= panel.keys.begin) return;
  for (int64 key = tile.keys.begin; key < tile.keys.end;) {
    Piece piece = piece_at(panel, key);
    while (piece.end < tile.keys.end) {
      const Piece next = piece_at(panel, piece.end);
      if (next.first_column != piece.first_column || next.columns != piece.columns ||
          next.masked != piece.masked) {
        break;
      }
      piece.end = next.end;
    }
    key = piece.end;
    if (piece.columns == 0) continue;
    with_columns(piece.columns, [&](auto used) HWY_ATTR {
      run_piece<used()>(problem, tile, piece, panel, scores);
    });
  }
}

}  // namespace parapet::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // PARAPET_CPU_TILE_INL_H_
