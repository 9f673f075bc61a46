#pragma once

#include "kernels/core/block_work.h"
#include "kernels/core/online_softmax.h"

// The rows of a block's query tile: which query and head each is, and where it lies in a tensor.

namespace parapet::kernels {

// kPackedHeads: a tile row is a (query, head of the slot) pair, the head fastest; else a query.
template <bool kPackedHeads>
struct QueryRows {
  const ForwardParams& params;
  const WorkItem& item;
  int slot;

  DEVICE int heads() const { return kPackedHeads ? params.heads_per_tile : 1; }
  DEVICE int query(int row) const { return row / heads(); }
  DEVICE int head(int row) const { return slot * heads() + row % heads(); }

  // Tile rows of queries that are used, and of those that are written.
  DEVICE int used() const { return item.query_used * heads(); }
  DEVICE int owned() const { return item.query_rows * heads(); }

  // The element at which a row begins.
  DEVICE long long offset(int row, long long batch_stride, long long row_stride,
                          long long head_stride) const {
    return item.segment * batch_stride + (item.query_begin + query(row)) * row_stride +
           head(row) * head_stride;
  }

  DEVICE const char* q(int row) const {
    return static_cast<const char*>(params.q) +
           2 * offset(row, params.q_batch_stride, params.q_row_stride, params.q_head_stride);
  }
  DEVICE char* out(int row) const {
    return static_cast<char*>(params.out) +
           2 * offset(row, params.out_batch_stride, params.out_row_stride, params.out_head_stride);
  }
  DEVICE float* lse(int row) const {
    return params.lse +
           offset(row, params.lse_batch_stride, params.lse_row_stride, params.lse_head_stride);
  }

  // The sink of a row's head in powers of two; -infinity where there is none.
  DEVICE float sink(int row) const {
    if (params.sink == nullptr) return -arch::kInfinity;
    const long long at = head(row) * params.sink_stride;
    if (params.sink_type == kSinkFloat32)
      return kLog2E * __builtin_bit_cast(float, arch::load_global_u32(static_cast<const float*>(params.sink) + at));
    const arch::u16 bits = arch::load_global_u16(static_cast<const arch::u16*>(params.sink) + at);
    return kLog2E * (params.sink_type == kSinkFloat16
                         ? arch::from_float16(bits)
                         : __builtin_bit_cast(float, static_cast<arch::u32>(bits) << 16));
  }
};

}  // namespace parapet::kernels
