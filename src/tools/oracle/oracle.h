#pragma once

#include <vector>

#include "api/problem.h"

// Attention straight from its definition, in float64 and without tiling: what every backend is
// compared with. Slow on purpose; shares nothing with the backends but `Problem`.

namespace parapet::oracle {

// One row of the result: head_dim_v outputs and the log-sum-exp.
struct Row {
  std::vector<double> out;
  double lse = 0.0;
};

// Row `row` (of the segment) of head `head` of segment `segment`.
Row forward_row(const api::Problem& problem, plan::int64 segment, plan::int64 head,
                plan::int64 row);

}  // namespace parapet::oracle
