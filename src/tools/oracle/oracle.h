#pragma once

#include <vector>

#include "api/problem.h"

// Attention straight from its definition (docs/semantics.md), in float64 and without tiling: what
// every backend is compared with. Slow on purpose; shares nothing with the backends but `Problem`.

namespace parapet::oracle {

using plan::int64;

// Rows [begin, begin + length) of a tensor, or of its batch entry where it is dense.
struct Rows {
  int64 begin = 0;
  int64 length = 0;
};

// The rows that a segment uses, every length clamped into its tensor.
Rows query_rows(const api::Problem& problem, int64 segment);
Rows key_rows(const api::Problem& problem, int64 segment);

// One row of the result: head_dim_v outputs and the log-sum-exp.
struct Row {
  std::vector<double> out;
  double lse = 0.0;
  // The largest weighted average of |v| over the head dim: what rounding errors of `out` are
  // relative to.
  double scale = 0.0;
  // The largest sum of |q k| over the head dim, times softmax_scale: what rounding errors of the
  // scores are relative to.
  double score_scale = 0.0;
};

// Row `row` < query_rows().length of head `head` of segment `segment`.
Row forward_row(const api::Problem& problem, int64 segment, int64 head, int64 row);

// The same row as a plain implementation in the inputs' precision computes it: float32 arithmetic,
// weights rounded to the dtype before they meet v, outputs rounded to it. How far it is from
// forward_row says how much error is to be expected of the data.
Row rounded_row(const api::Problem& problem, int64 segment, int64 head, int64 row);

}  // namespace parapet::oracle
