#include "cpu/layout.h"

#include "plan/cpu_schedule.h"

namespace parapet::cpu {
namespace {

using plan::ceil_div;
using plan::round_up;

int64 k_floats(const api::Problem& problem, int64 keys) {
  return round_up(keys, kMaxGroup) * round_up(problem.head_dim, kMaxGroup);
}
int64 v_floats(const api::Problem& problem, int64 keys) {
  return round_up(keys, kMaxGroup) * round_up(problem.head_dim_v, kMaxGroup);
}

}  // namespace

Packed::Packed(const api::Problem& problem, Range packed_keys, float* memory)
    : keys(packed_keys),
      k(memory),
      v(k + k_floats(problem, keys.size())),
      v_check(v + v_floats(problem, keys.size())) {}

int64 Packed::floats(const api::Problem& problem, int64 keys) {
  return k_floats(problem, keys) + v_floats(problem, keys) +
         round_up(ceil_div(keys, plan::kCpuTileKeys), kMaxLanes);
}

int64 RowSums::stride(const api::Problem& problem) {
  return round_up(problem.head_dim_v, kMaxLanes) + kMaxLanes;
}

int64 panels_scratch_floats(const api::Problem& problem) {
  const int64 panel = kMaxPanelRows * (round_up(problem.head_dim, kMaxGroup) +
                                       round_up(problem.head_dim_v, kMaxGroup));
  const int64 rows = kMaxPanelRows * RowSums::stride(problem);
  return plan::kCpuBlockPanels * (panel + rows) + rows + plan::kCpuTileKeys * kMaxPanelRows;
}

int64 few_rows_scratch_floats(const api::Problem& problem, int64 rows, int64 heads) {
  const int64 dim = round_up(problem.head_dim, kMaxLanes);
  const int64 widest = round_up(plan::max(problem.head_dim, problem.head_dim_v), kMaxLanes);
  const int64 group_rows = round_up(rows, 4);
  return heads * (group_rows * dim + rows * RowSums::stride(problem)) + RowSums::stride(problem) +
         16 * widest;
}

}  // namespace parapet::cpu
