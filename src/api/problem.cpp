#include "api/problem.h"

#include <cmath>
#include <cstdint>

#include "api/checks.h"
#include "api/refuse.h"
#include "api/row_contiguous.h"

namespace parapet::api {
namespace {

Operand operand(const TensorView& view) {
  const int rows = view.rank - 3;
  return {.data = view.data,
          .batch_stride = view.rank == 4 ? view.strides[0] : 0,
          .row_stride = view.strides[rows],
          .head_stride = view.strides[rows + 1]};
}

Layout layout(int64 rows, const std::optional<TensorView>& cu_seqlens,
              const std::optional<TensorView>& seqused) {
  const auto data = [](const std::optional<TensorView>& view) {
    return view ? static_cast<const std::int32_t*>(view->data) : nullptr;
  };
  return {.rows = rows, .cu_seqlens = data(cu_seqlens), .seqused = data(seqused)};
}

}  // namespace

plan::Band band_of(const ForwardOptions& options) {
  const auto reach = [](const std::optional<std::int64_t>& window) {
    const int64 unlimited = plan::kUnlimited;
    return window && *window >= 0 ? plan::min(int64{*window}, unlimited) : unlimited;
  };
  return {reach(options.window_left), options.causal ? 0 : reach(options.window_right)};
}

Extents check_call(const ForwardTensors& tensors, const ForwardOptions& options) {
  const Extents extents = check_tensors(tensors);
  check_overlaps(tensors);
  check_options(options);
  const bool readable = tensors.q.device.type == DeviceType::kCpu;
  if (options.check_metadata && readable) check_lengths(tensors, extents);
  return extents;
}

Problem describe(const ForwardTensors& tensors, const ForwardOptions& options,
                 const Extents& extents) {
  Problem problem;
  problem.dtype = tensors.q.dtype;
  problem.device = tensors.q.device;

  problem.batch = extents.batch;
  problem.num_heads = extents.num_heads;
  problem.num_heads_k = extents.num_heads_k;
  problem.head_dim = extents.head_dim;
  problem.head_dim_v = extents.head_dim_v;

  problem.query = layout(extents.rows_q, tensors.cu_seqlens_q, tensors.seqused_q);
  problem.key = layout(extents.rows_k, tensors.cu_seqlens_k, tensors.seqused_k);

  problem.q = operand(tensors.q);
  problem.k = operand(tensors.k);
  problem.v = operand(tensors.v);
  problem.out = operand(tensors.out);

  if (tensors.lse) {
    const TensorView& lse = *tensors.lse;
    problem.lse = static_cast<float*>(lse.data);
    problem.lse_batch_stride = lse.rank == 3 ? lse.strides[0] : 0;
    problem.lse_head_stride = lse.strides[lse.rank - 2];
    problem.lse_row_stride = lse.strides[lse.rank - 1];
  }
  if (tensors.learnable_sink) {
    problem.sink = tensors.learnable_sink->data;
    problem.sink_dtype = tensors.learnable_sink->dtype;
    problem.sink_stride = tensors.learnable_sink->strides[0];
  }

  problem.softmax_scale =
      options.softmax_scale.value_or(1.0f / std::sqrt(static_cast<float>(extents.head_dim)));
  problem.softcap = options.softcap;
  problem.band = band_of(options);
  problem.num_splits = options.num_splits;
  problem.num_threads = options.num_threads;
  return problem;
}

Problem make_problem(const ForwardTensors& tensors, const ForwardOptions& options) {
  const Extents extents = check_call(tensors, options);
  const auto require = [](const char* name, const TensorView& view) {
    if (!is_row_contiguous(view)) {
      refuse("{}: expected a last stride of 1, found {}", name, view.strides[view.rank - 1]);
    }
  };
  require("q", tensors.q);
  require("k", tensors.k);
  require("v", tensors.v);
  require("out", tensors.out);
  return describe(tensors, options, extents);
}

}  // namespace parapet::api
