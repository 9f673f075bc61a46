#pragma once

#include "kernels/core/band_mask.h"
#include "kernels/core/element.h"
#include "kernels/core/rows.h"
#include "kernels/core/score.h"

namespace parapet::kernels {

// The outputs of the tile rows [begin, end) by the definition, a row and a key at a time: no key
// that a row does not see is touched. Slow; for rows that a matrix multiplication would spoil,
// where values that are infinite or NaN lie behind a mask. One warp; each lane has every 32nd
// column.
template <ForwardConfig kConfig, class Mod>
DEVICE void exact_rows(const Mod& mod, const BlockRows<kConfig.packed_heads>& rows, int begin,
                       int end) {
  constexpr int kColumns = static_cast<int>(plan::ceil_div(kConfig.head_dim, 32));
  constexpr int kColumnsV = static_cast<int>(plan::ceil_div(kConfig.head_dim_v, 32));
  const int lane = static_cast<int>(arch::thread_index() % 32);
  const auto mask = band_mask<kConfig.left_edge, kConfig.right_edge>(
      band_of(rows.params), rows.item.query_used, rows.item.key_rows);
  NO_UNROLL
  for (int row = begin; row < end; ++row) {
    float query[kColumns], out[kColumnsV] = {};
    UNROLL
    for (int i = 0; i < kColumns; ++i) {
      const int column = lane + 32 * i;
      query[i] =
          column < kConfig.head_dim ? load_element<kConfig.element>(rows.q(row), column) : 0.0f;
    }
    float top = -arch::kInfinity, sum = 0.0f;
    const KeyRange seen = mask.of_row(rows.query(row));
    NO_UNROLL
    for (int key = seen.begin; key < seen.end; ++key) {
      float score = 0.0f;
      UNROLL
      for (int i = 0; i < kColumns; ++i) {
        const int column = lane + 32 * i;
        if (column < kConfig.head_dim)
          score += query[i] * load_element<kConfig.element>(rows.k(key), column);
      }
      for (u32 distance = 16; distance > 0; distance /= 2)
        score += arch::shuffle_xor(score, distance);
      const float x = exponent<kConfig.softcap>(rows.params, mod, score, 0.0f, [&] {
        return ScorePosition{rows.item.segment,    rows.head(row),    rows.query(row), key,
                             rows.item.query_used, rows.item.key_rows};
      });
      if (x == -arch::kInfinity) continue;
      const float higher = arch::max(top, x);
      const float shrink = arch::exp2_approx(top - higher), weight = arch::exp2_approx(x - higher);
      top = higher;
      sum = sum * shrink + weight;
      UNROLL
      for (int i = 0; i < kColumnsV; ++i) {
        const int column = lane + 32 * i;
        if (column < kConfig.head_dim_v)
          out[i] = out[i] * shrink + weight * load_element<kConfig.element>(rows.v(key), column);
      }
    }
    const bool empty = sum == 0.0f;
    const RowResult result = finish_row(sum, empty ? kNoReference : 0.0f - top, rows.sink(row));
    UNROLL
    for (int i = 0; i < kColumnsV; ++i) {
      const int column = lane + 32 * i;
      if (column < kConfig.head_dim_v)
        arch::store_global_u16(rows.out(row) + 2 * column,
                               static_cast<arch::u16>(pack<kConfig.element>(
                                   empty ? 0.0f : out[i] * result.factor, 0.0f)));
    }
  }
}

}  // namespace parapet::kernels
