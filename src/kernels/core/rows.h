#pragma once

#include "kernels/core/block_work.h"
#include "kernels/core/online_softmax.h"

// Where the rows that a block reads and writes lie in their tensors.

namespace parapet::kernels {

// A block's query rows and the keys they meet. kPackedHeads: a tile row is a (query, head of the
// slot) pair, the head fastest; otherwise it is a query.
template <bool kPackedHeads>
struct BlockRows {
  const ForwardParams& params;
  const WorkItem& item;
  int slot;

  DEVICE int heads() const { return kPackedHeads ? params.heads_per_tile : 1; }
  DEVICE int query(int row) const { return row / heads(); }
  DEVICE int head(int row) const { return slot * heads() + row % heads(); }
  DEVICE int key_head() const {
    return kPackedHeads ? slot : slot / (arch::opaque(params.num_heads) / params.num_heads_k);
  }

  // How many tile rows belong to queries that are used, and to queries that are written.
  DEVICE int used() const { return item.query_used * heads(); }
  DEVICE int owned() const { return item.query_rows * heads(); }

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

  DEVICE const char* k(int key) const {
    return static_cast<const char*>(params.k) +
           2 * (item.segment * params.k_batch_stride +
                (item.key_begin + key) * params.k_row_stride + key_head() * params.k_head_stride);
  }
  DEVICE const char* v(int key) const {
    return static_cast<const char*>(params.v) +
           2 * (item.segment * params.v_batch_stride +
                (item.key_begin + key) * params.v_row_stride + key_head() * params.v_head_stride);
  }

  // The sink of a row's head in powers of two; -infinity where there is none.
  DEVICE float sink(int row) const {
    if (arch::opaque(params.sink) == nullptr) return -arch::kInfinity;
    const long long at = head(row) * params.sink_stride;
    if (params.sink_type == kSinkFloat32)
      return kLog2E * arch::load_global_float(static_cast<const float*>(params.sink) + at);
    const arch::u16 bits = arch::load_global_u16(static_cast<const arch::u16*>(params.sink) + at);
    return kLog2E * (params.sink_type == kSinkFloat16 ? arch::from_float16(bits)
                                                      : arch::from_bfloat16(bits));
  }

 private:
  DEVICE long long offset(int row, long long batch_stride, long long row_stride,
                          long long head_stride) const {
    const long long first = item.segment * batch_stride + item.query_begin * row_stride;
    return first + head(row) * head_stride + query(row) * row_stride;
  }
};

}  // namespace parapet::kernels
