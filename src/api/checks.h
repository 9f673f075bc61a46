#pragma once

#include "parapet/attention.h"
#include "plan/host_device.h"

// The checks of a call, by what they look at. Each throws Error at the first thing that is wrong.

namespace parapet::api {

using plan::int64;

// The extents that the tensors of a call agree on.
struct Extents {
  int64 batch = 0;
  int64 rows_q = 0;  // of a batch entry, or of the packed tensor
  int64 rows_k = 0;
  int64 num_heads = 0;
  int64 num_heads_k = 0;
  int64 head_dim = 0;
  int64 head_dim_v = 0;
};

// Device, dtype, rank, extents, strides and address of each tensor, and that all shapes agree.
Extents check_tensors(const ForwardTensors& tensors);

// That no element of out or lse is stored twice or is also an element of another tensor.
void check_overlaps(const ForwardTensors& tensors);

void check_options(const ForwardOptions& options);

// The values of cu_seqlens and seqused, which are in host memory and have passed check_tensors.
void check_lengths(const ForwardTensors& tensors, const Extents& extents);

// All of the above.
Extents check_call(const ForwardTensors& tensors, const ForwardOptions& options);

}  // namespace parapet::api
