#include "cuda/launch_plan.h"

#include <fmt/format.h>

#include <cstdint>

#include "parapet/error.h"

namespace parapet::cuda {
namespace {

using kernels::ForwardConfig;
using kernels::ForwardParams;
using kernels::kMaxRows;
using plan::int64;

constexpr float kLog2E = 1.44269504088896340736f;
constexpr int64 kAlignment = 16;  // of what a kernel moves at once

template <class... Args>
[[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(ErrorCode::kNotImplemented, fmt::format(format, std::forward<Args>(args)...));
}

void check_supported(const api::Problem& problem) {
  if (problem.dtype == DType::kFloat32) {
    refuse("q: expected float16 or bfloat16 on a GPU, found float32");
  }
  const auto check_head_dim = [](const char* name, int64 head_dim) {
    if (head_dim > kernels::kMaxHeadDim || head_dim % kernels::kHeadDimStep != 0) {
      refuse("{}: expected a head dim on a GPU that is a multiple of {} up to {}, found {}", name,
             kernels::kHeadDimStep, kernels::kMaxHeadDim, head_dim);
    }
  };
  check_head_dim("q", problem.head_dim);
  check_head_dim("v", problem.head_dim_v);
  const auto check_extent = [](const char* what, int64 extent) {
    if (extent > kMaxRows)
      refuse("{} on a GPU: expected at most {}, found {}", what, kMaxRows, extent);
  };
  check_extent("rows of q", problem.query.rows);
  check_extent("rows of k", problem.key.rows);
  check_extent("batch", problem.batch);
  check_extent("heads", problem.num_heads);
  if (problem.num_splits > 1) {
    refuse("num_splits: expected 0 or 1 on a GPU, found {}", problem.num_splits);
  }
}

bool is_aligned(const api::Operand& operand, int64 element_bytes) {
  const int64 bytes = static_cast<int64>(reinterpret_cast<std::uintptr_t>(operand.data)) |
                      operand.batch_stride * element_bytes | operand.row_stride * element_bytes |
                      operand.head_stride * element_bytes;
  return bytes % kAlignment == 0;
}

// A band's reach as the kernels take it.
int reach(int64 distance) {
  return static_cast<int>(plan::min(distance, int64{kMaxRows}));
}

int sink_type(DType dtype) {
  switch (dtype) {
    case DType::kBFloat16:
      return kernels::kSinkBfloat16;
    case DType::kFloat16:
      return kernels::kSinkFloat16;
    default:
      return kernels::kSinkFloat32;
  }
}

bool packs_heads(const api::Problem& problem, int query_tile) {
  const int64 rows = problem.query.packed() ? plan::ceil_div(problem.query.rows, problem.batch)
                                            : problem.query.rows;
  const int64 ratio = problem.num_heads / problem.num_heads_k;
  return problem.query.rows <= kMaxRows / ratio &&
         kernels::packing_heads_pays(static_cast<int>(problem.num_heads),
                                     static_cast<int>(problem.num_heads_k), rows, query_tile);
}

// About how many keys a query sees.
int64 visible_keys(const api::Problem& problem) {
  const int64 keys =
      problem.key.packed() ? plan::ceil_div(problem.key.rows, problem.batch) : problem.key.rows;
  const int64 in_band = plan::min(keys, problem.band.left + 1 + problem.band.right);
  return problem.band.right < kMaxRows ? plan::min(in_band, keys / 2) : in_band;
}

ForwardConfig choose_config(const api::Problem& problem, int shared_bytes_per_sm) {
  ForwardConfig config;
  config.element =
      problem.dtype == DType::kBFloat16 ? kernels::Element::kBfloat16 : kernels::Element::kFloat16;
  config.head_dim = static_cast<int>(problem.head_dim);
  config.head_dim_v = static_cast<int>(problem.head_dim_v);
  config.left_edge = problem.band.left < kMaxRows;
  config.right_edge = problem.band.right < kMaxRows;
  config.softcap = problem.softcap > 0.0f;
  const int64 element_bytes = size_of(problem.dtype);
  config.aligned = is_aligned(problem.q, element_bytes) && is_aligned(problem.k, element_bytes) &&
                   is_aligned(problem.v, element_bytes) && is_aligned(problem.out, element_bytes);
  const kernels::ShapeHints hints{visible_keys(problem), shared_bytes_per_sm};
  config.shape = kernels::forward_shape(config, hints);
  config.packed_heads = packs_heads(problem, kernels::forward_query_tile(config));
  config.shape = kernels::forward_shape(config, hints);
  return config;
}

ForwardParams make_params(const api::Problem& problem, const ForwardConfig& config) {
  const bool softcap = problem.softcap > 0.0f;
  const int64 ratio = problem.num_heads / problem.num_heads_k;
  ForwardParams params{};
  params.q = problem.q.data;
  params.k = problem.k.data;
  params.v = problem.v.data;
  params.out = problem.out.data;
  params.lse = problem.lse;
  params.sink = problem.sink;
  params.cu_seqlens_q = problem.query.cu_seqlens;
  params.cu_seqlens_k = problem.key.cu_seqlens;
  params.seqused_q = problem.query.seqused;
  params.seqused_k = problem.key.seqused;
  params.q_batch_stride = problem.q.batch_stride;
  params.q_row_stride = problem.q.row_stride;
  params.q_head_stride = problem.q.head_stride;
  params.k_batch_stride = problem.k.batch_stride;
  params.k_row_stride = problem.k.row_stride;
  params.k_head_stride = problem.k.head_stride;
  params.v_batch_stride = problem.v.batch_stride;
  params.v_row_stride = problem.v.row_stride;
  params.v_head_stride = problem.v.head_stride;
  params.out_batch_stride = problem.out.batch_stride;
  params.out_row_stride = problem.out.row_stride;
  params.out_head_stride = problem.out.head_stride;
  params.lse_batch_stride = problem.lse_batch_stride;
  params.lse_row_stride = problem.lse_row_stride;
  params.lse_head_stride = problem.lse_head_stride;
  params.sink_stride = problem.sink_stride;
  params.batch = static_cast<int>(problem.batch);
  params.num_heads = static_cast<int>(problem.num_heads);
  params.num_heads_k = static_cast<int>(problem.num_heads_k);
  params.rows_q = static_cast<int>(problem.query.rows);
  params.rows_k = static_cast<int>(problem.key.rows);
  params.band_left = reach(problem.band.left);
  params.band_right = reach(problem.band.right);
  params.sink_type = sink_type(problem.sink_dtype);
  params.score_scale =
      softcap ? problem.softmax_scale / problem.softcap : problem.softmax_scale * kLog2E;
  params.softcap_scale = softcap ? problem.softcap * kLog2E : 0.0f;
  params.unit_rows = kernels::forward_unit_rows(config);
  params.heads_per_tile = config.packed_heads ? static_cast<int>(ratio) : 1;
  return params;
}

}  // namespace

// The work list, then the number of its entries.
plan::int64 LaunchPlan::workspace_bytes() const {
  constexpr int64 kCountBytes = 16;
  return uses_work_list() ? work_list_capacity * int64{sizeof(kernels::WorkItem)} + kCountBytes : 0;
}

void LaunchPlan::set_workspace(void* memory) {
  params.work_items = static_cast<kernels::WorkItem*>(memory);
  params.work_count = reinterpret_cast<int*>(params.work_items + work_list_capacity);
}

LaunchPlan plan_launch(const api::Problem& problem, int shared_bytes_per_sm, int multiprocessors) {
  check_supported(problem);
  LaunchPlan launch;
  launch.config = choose_config(problem, shared_bytes_per_sm);
  launch.params = make_params(problem, launch.config);
  const int64 units =
      kernels::work_list_capacity(problem.batch, problem.query.rows, problem.query.packed(),
                                  launch.params.heads_per_tile, launch.params.unit_rows);
  const int64 slots = problem.num_heads / launch.params.heads_per_tile;
  if (units * slots > kMaxRows) {
    refuse("q: expected at most {} pieces of {} rows of a head on a GPU, found {}", kMaxRows,
           launch.params.unit_rows, units * slots);
  }
  const bool lengths_on_gpu =
      launch.params.cu_seqlens_q != nullptr || launch.params.cu_seqlens_k != nullptr ||
      launch.params.seqused_q != nullptr || launch.params.seqused_k != nullptr;
  launch.work_list_capacity = lengths_on_gpu ? units : 0;
  const int64 at_once = int64{multiprocessors} * launch.config.shape.blocks_per_sm;
  launch.blocks = static_cast<int>(plan::min(units * slots, at_once));
  return launch;
}

}  // namespace parapet::cuda
