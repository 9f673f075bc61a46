#pragma once

#include <cstdint>

#include "parapet/attention.h"
#include "plan/band.h"

// What a backend is given: one attention call, all of it checked, every default filled in.

namespace parapet::api {

using plan::int64;

// A tensor of rows and heads; strides count elements and the last dimension's is 1. Of a packed
// tensor batch_stride is 0.
struct Operand {
  void* data = nullptr;
  int64 batch_stride = 0;
  int64 row_stride = 0;
  int64 head_stride = 0;
};

// How the rows of queries or of keys fall into segments.
struct Layout {
  bool packed() const { return cu_seqlens != nullptr; }

  int64 rows = 0;  // packed: rows of the tensor; dense: rows of a batch entry
  const std::int32_t* cu_seqlens = nullptr;  // batch + 1 of them, on the problem's device
  const std::int32_t* seqused = nullptr;     // batch of them, or null
};

struct Problem {
  DType dtype = DType::kFloat32;  // of q, k, v and out
  Device device;

  int64 batch = 0;
  int64 num_heads = 0;
  int64 num_heads_k = 0;
  int64 head_dim = 0;
  int64 head_dim_v = 0;

  Layout query;
  Layout key;

  Operand q;
  Operand k;
  Operand v;
  Operand out;

  // Row i of head h of batch entry b: lse[b * lse_batch_stride + h * lse_head_stride + i *
  // lse_row_stride]; of a packed tensor lse_batch_stride is 0 and i counts from the tensor's first
  // row.
  float* lse = nullptr;
  int64 lse_batch_stride = 0;
  int64 lse_head_stride = 0;
  int64 lse_row_stride = 0;

  const void* sink = nullptr;  // num_heads of them, or null
  DType sink_dtype = DType::kFloat32;
  int64 sink_stride = 0;

  float softmax_scale = 1.0f;
  float softcap = 0.0f;  // 0: off
  plan::Band band;
  int num_splits = 1;
  int num_threads = 0;
};

// What a query sees of its segment's keys.
plan::Band band_of(const ForwardOptions& options);

struct Extents;  // api/checks.h

// The problem of a call that has passed check_call.
Problem describe(const ForwardTensors& tensors, const ForwardOptions& options,
                 const Extents& extents);

// Checks everything that the host can see; throws Error. Metadata on the host is read and checked
// unless options.check_metadata is false. The last stride of q, k, v and out has to be 1 here;
// `forward` makes copies of those that differ.
Problem make_problem(const ForwardTensors& tensors, const ForwardOptions& options);

}  // namespace parapet::api
