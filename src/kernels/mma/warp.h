#pragma once

#include "kernels/arch/matrix.h"
#include "kernels/core/band_mask.h"
#include "kernels/core/element.h"
#include "kernels/core/online_softmax.h"
#include "kernels/core/rows.h"
#include "kernels/mma/tile.h"

namespace parapet::kernels {

// ---- The matrix instructions of an element type -------------------------------------------------

template <Element kElement>
DEVICE void multiply(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  if constexpr (kElement == Element::kBfloat16)
    arch::multiply_bfloat16(c, a, b0, b1);
  else
    arch::multiply_float16(c, a, b0, b1);
}

template <Element kElement>
DEVICE void multiply_from_zero(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  if constexpr (kElement == Element::kBfloat16)
    arch::multiply_bfloat16_from_zero(c, a, b0, b1);
  else
    arch::multiply_float16_from_zero(c, a, b0, b1);
}

// In global memory a lane reads and writes words 2 (c / 2) and the next of every other unit of a
// row, where c is its place among the four lanes that share the row; a matrix operand wants word c
// of each unit. Between the two, neighbours trade a word of each two units.
DEVICE void trade_words(arch::HalfUnit& words, bool is_odd) {
  const u32 low = words.word[0], high = words.word[1];
  const u32 got = arch::shuffle_xor(is_odd ? low : high, 1);
  words = {is_odd ? got : low, is_odd ? high : got};
}

DEVICE int traded_unit(int lane, int first_unit) {
  return first_unit + lane % 2;
}
DEVICE int traded_byte(int lane, int first_unit) {
  return traded_unit(lane, first_unit) * 16 + lane % 4 / 2 * 8;
}

// ---- A warp's rows ------------------------------------------------------------------------------

// Where a warp's rows stand in their segment, for masks and mods. The first belongs to query
// `first_query`, from which the mask counts; with packed heads to head `first_head` of the slot.
template <ForwardConfig kConfig>
struct RowFrame {
  static constexpr int kLastRow = Tile<kConfig>::kWarpRows - 1;

  BandMask<kConfig.left_edge, kConfig.right_edge> mask;
  int first_query;
  int first_head;
  int heads_per_tile;

  // Row of the warp -> query, counted from first_query.
  DEVICE int query(int row) const {
    return kConfig.packed_heads ? (first_head + row) / heads_per_tile : row;
  }
  DEVICE int head(int row) const {
    return kConfig.packed_heads ? (first_head + row) % heads_per_tile : 0;
  }

  // Packed heads belong to fewer queries than rows: these two then err on the safe side.
  DEVICE KeyRange view() const { return mask.of_rows(0, kLastRow); }
  DEVICE bool cuts(int begin, int end) const { return mask.cuts(0, kLastRow, begin, end); }
  DEVICE KeyRange seen_by_all() const { return mask.seen_by_all(0, kLastRow); }
};

// One warp's registers: its query rows, what it has summed for them, and the steps that work on
// them. Lane l holds of each 16-row tile the rows l / 4 and l / 4 + 8, of each 8 columns 2 (l % 4)
// and the next; `half` is which of the two rows.
template <ForwardConfig kConfig>
struct Warp {
  using T = Tile<kConfig>;
  using Frame = RowFrame<kConfig>;
  using Scores = float[T::kRowTiles][T::kChunkBlocks][4];
  using Sums = float[T::kRowTiles][2];
  using Weights = u32[T::kRowTiles][T::kChunkSlices][4];
  using KeyFragments = u32[3][4];  // three in flight
  using ValueFragments = u32[2][4];

  static constexpr Element kElement = kConfig.element;
  static constexpr int kScoreSteps = T::kKeySlices * T::kChunkSlices;
  static constexpr int kValueSteps = T::kValueSlices * T::kChunkSlices;
  static constexpr int kScorePairs = T::kRowTiles * T::kChunkBlocks * 2;

  float out[T::kRowTiles][T::kValueSlices * 2][4];  // not yet divided by sum
  u32 query[T::kRowTiles][T::kKeySlices][4];
  float neg_reference[T::kRowTiles][2];
  Sums sum;  // this lane's share of a row's weights

  // Where this lane's part of a fragment lies. Of values, lane l reads row l % 16 and unit l / 16;
  // of keys row l % 8 + l / 16 * 8 and unit l / 8 % 2, which gives consecutive registers to the two
  // halves of a matrix operand.
  u32 keys_at;
  u32 values_at;

  // Where registers are shortest, computing offsets anew is better than local memory.
  static constexpr bool kPinsOffsets = !(T::kMasked && T::kShape.blocks_per_sm == 2);

  DEVICE void begin(u32 shared) {
    const int lane = static_cast<int>(arch::thread_index() % 32);
    keys_at = shared + shared_at<T::kRowBytes>(lane % 8 + lane / 16 * 8, lane / 8 % 2);
    values_at = shared + T::kTileBytes + shared_at<T::kRowBytes>(lane % 16, lane / 16);
    // Shuffled from the lane itself, or ptxas would compute them anew in every step.
    if constexpr (kPinsOffsets) {
      keys_at = arch::shuffle(keys_at, static_cast<u32>(lane));
      values_at = arch::shuffle(values_at, static_cast<u32>(lane));
    }
  }

  // ---- Queries

  struct Queries {
    arch::HalfUnit words[T::kRowTiles][2][T::kKeySlices];
  };

  // Rows that are not used are zeros.
  DEVICE Queries fetch_queries(const BlockRows<kConfig.packed_heads>& rows, int first_row) const {
    const int lane = static_cast<int>(arch::thread_index_again() % 32);
    Queries queries;
    UNROLL
    for (int m = 0; m < T::kRowTiles; ++m) {
      UNROLL
      for (int half = 0; half < 2; ++half) {
        const int row = first_row + row_in_warp(lane, m, half);
        const bool used = row < rows.used();
        const char* const from = rows.q(used ? row : 0);
        UNROLL
        for (int slice = 0; slice < T::kKeySlices; ++slice)
          queries.words[m][half][slice] = load_half_unit<kConfig.aligned>(
              from + traded_byte(lane, 2 * slice),
              used && traded_unit(lane, 2 * slice) < kConfig.head_dim / kUnitElements);
      }
    }
    return queries;
  }

  // Nothing is seen yet.
  DEVICE void begin_rows(Queries& queries) {
    const bool is_odd = arch::thread_index_again() % 2 != 0;
    UNROLL
    for (int m = 0; m < T::kRowTiles; ++m) {
      UNROLL
      for (int half = 0; half < 2; ++half) {
        UNROLL
        for (int slice = 0; slice < T::kKeySlices; ++slice) {
          arch::HalfUnit& words = queries.words[m][half][slice];
          trade_words(words, is_odd);
          query[m][slice][half] = words.word[0];
          query[m][slice][half + 2] = words.word[1];
        }
        neg_reference[m][half] = kNoReference;
        sum[m][half] = 0.0f;
      }
      UNROLL
      for (auto& block : out[m]) {
        UNROLL
        for (float& x : block) x = 0.0f;
      }
    }
  }

  // Of 16 rows of a chunk, the slice of 16 columns.
  PARAPET_HOST_DEVICE static constexpr u32 fragment_at(int sixteen_rows, int slice) {
    return sixteen_rows * 16 * T::kRowBytes + slice * 32;
  }

  // ---- Scores: Q K^T of a chunk. A step multiplies 16 keys by a slice, two steps after asking for
  // its fragment.

  DEVICE void fetch_keys(KeyFragments& keys, u32 chunk, int step) const {
    if (step < kScoreSteps)
      arch::load_matrices(
          keys[step % 3],
          keys_at + chunk + fragment_at(step % T::kChunkSlices, step / T::kChunkSlices));
  }

  DEVICE void score_step(Scores& scores, KeyFragments& keys, u32 chunk, int step) const {
    const int slice = step / T::kChunkSlices, n = step % T::kChunkSlices;
    fetch_keys(keys, chunk, step + 2);
    const u32(&k)[4] = keys[step % 3];
    UNROLL
    for (int half = 0; half < 2; ++half) {
      UNROLL
      for (int m = 0; m < T::kRowTiles; ++m) {
        float(&to)[4] = scores[m][2 * n + half];
        if (slice == 0)
          multiply_from_zero<kElement>(to, query[m][slice], k[2 * half], k[2 * half + 1]);
        else
          multiply<kElement>(to, query[m][slice], k[2 * half], k[2 * half + 1]);
      }
    }
  }

  // ---- Softmax: scores to exponents relative to the row's reference, exponents to weights. A pair
  // is two neighbouring scores of a row.

  struct Pair {
    int m, block, half;
    DEVICE explicit Pair(int index)
        : m(index / 2 / T::kChunkBlocks), block(index / 2 % T::kChunkBlocks), half(index % 2) {}
  };

  template <class ScoreToExponent>
  DEVICE void exponent_pair(Scores& scores, int index, const ScoreToExponent& to_exponent) const {
    const Pair p(index);
    UNROLL
    for (int e = 0; e < 2; ++e) {
      float& x = scores[p.m][p.block][2 * p.half + e];
      x = to_exponent(x, neg_reference[p.m][p.half], p, e);
    }
  }

  struct WeightPair {
    float low;
    float high;
  };
  DEVICE WeightPair weigh(const Scores& exponents, int index) const {
    const Pair p(index);
    return {arch::exp2_approx(exponents[p.m][p.block][2 * p.half]),
            arch::exp2_approx(exponents[p.m][p.block][2 * p.half + 1])};
  }

  // Packs a pair where the next multiplication wants it as its left operand, and adds it to the sum
  // of its row in the chunk.
  DEVICE void add_weights(WeightPair pair, Weights& weights, Sums& sums, int index) const {
    const Pair p(index);
    float& total = sums[p.m][p.half];
    total = p.block == 0 ? pair.low + pair.high : total + (pair.low + pair.high);
    weights[p.m][p.block / 2][p.block % 2 * 2 + p.half] = pack<kElement>(pair.low, pair.high);
  }

  DEVICE float largest(const Scores& exponents) const {
    float top = exponents[0][0][0];
    UNROLL
    for (const auto& row_tile : exponents) {
      UNROLL
      for (const auto& block : row_tile) {
        UNROLL
        for (const float x : block) top = arch::max(top, x);
      }
    }
    return top;
  }

  // Keys that a row does not see get the exponent -infinity.
  DEVICE void hide(Scores& exponents, int first_key, const Frame& frame) const {
    const int lane = static_cast<int>(arch::thread_index_again() % 32);
    UNROLL
    for (int m = 0; m < T::kRowTiles; ++m) {
      UNROLL
      for (int half = 0; half < 2; ++half) {
        const KeyRange seen = view(frame, row_in_warp(lane, m, half));
        UNROLL
        for (int block = 0; block < T::kChunkBlocks; ++block) {
          UNROLL
          for (int e = 0; e < 2; ++e) {
            const int key = first_key + key_in_chunk(lane, block, e);
            if (!seen.contains(key)) exponents[m][block][2 * half + e] = -arch::kInfinity;
          }
        }
      }
    }
  }

  // Moves every row's reference up to the largest exponent of the chunk, and what was summed so
  // far.
  DEVICE void raise(Scores& exponents) {
    UNROLL
    for (int m = 0; m < T::kRowTiles; ++m) {
      UNROLL
      for (int half = 0; half < 2; ++half) {
        float top = -arch::kInfinity;
        UNROLL
        for (int block = 0; block < T::kChunkBlocks; ++block)
          top = arch::max(
              top, arch::max(exponents[m][block][2 * half], exponents[m][block][2 * half + 1]));
        float& reference = neg_reference[m][half];
        const Raise raise = raise_reference(reference, row_max(top));
        reference = raise.neg_reference;
        UNROLL
        for (int block = 0; block < T::kChunkBlocks; ++block) {
          UNROLL
          for (int e = 0; e < 2; ++e) exponents[m][block][2 * half + e] -= raise.rise;
        }
        sum[m][half] *= raise.factor;
        UNROLL
        for (auto& block : out[m]) {
          block[2 * half] *= raise.factor;
          block[2 * half + 1] *= raise.factor;
        }
      }
    }
  }

  // ---- Values: P V of a chunk. A step multiplies 16 keys by a slice of V.

  DEVICE void fetch_values(ValueFragments& values, u32 chunk, int step) const {
    if (step < kValueSteps)
      arch::load_matrices_transposed(
          values[step % 2],
          values_at + chunk + fragment_at(step / T::kValueSlices, step % T::kValueSlices));
  }

  DEVICE void value_step(const Weights& weights, ValueFragments& values, u32 chunk, int step) {
    const int k = step / T::kValueSlices, slice = step % T::kValueSlices;
    fetch_values(values, chunk, step + 1);
    UNROLL
    for (int half = 0; half < 2; ++half) {
      UNROLL
      for (int m = 0; m < T::kRowTiles; ++m)
        multiply<kElement>(out[m][2 * slice + half], weights[m][k], values[step % 2][2 * half],
                           values[step % 2][2 * half + 1]);
    }
  }

  DEVICE void add_sums(const Sums& more) {
    UNROLL
    for (int m = 0; m < T::kRowTiles; ++m) {
      UNROLL
      for (int half = 0; half < 2; ++half) sum[m][half] += more[m][half];
    }
  }

  DEVICE bool values_are_finite(u32 chunk) const {
    u32 found = 0;
    UNROLL
    for (int step = 0; step < kValueSteps; ++step) {
      u32 v[4];
      arch::load_matrices_transposed(
          v, values_at + chunk + fragment_at(step / T::kValueSlices, step % T::kValueSlices));
      UNROLL
      for (u32 x : v) found |= not_finite_bits<kElement>(x);
    }
    return !arch::any_in_warp(found != 0);
  }

  // ---- Positions

  static DEVICE int key_in_chunk(int lane, int block, int e) {
    return block * 8 + lane % 4 * 2 + e;
  }

  static DEVICE int row_in_warp(int lane, int m, int half) { return m * 16 + half * 8 + lane / 4; }

  static DEVICE KeyRange view(const Frame& frame, int row) {
    return frame.mask.of_row(frame.query(row));
  }
};

}  // namespace parapet::kernels
