#include "support/call.h"

#include <numeric>

namespace parapet::testing {
namespace {

std::int64_t total(const std::vector<std::int32_t>& lengths) {
  return std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
}

Extents rows(const std::vector<std::int32_t>& lengths, std::int64_t batch, std::int64_t seqlen,
             std::int64_t heads, std::int64_t head_dim) {
  if (lengths.empty()) return {batch, seqlen, heads, head_dim};
  return {total(lengths), heads, head_dim};
}

Extents lse_shape(const CallShape& s) {
  if (s.packed_q.empty()) return {s.batch, s.num_heads, s.seqlen_q};
  return {s.num_heads, total(s.packed_q)};
}

std::optional<Tensor> cu_seqlens(const std::vector<std::int32_t>& lengths) {
  if (lengths.empty()) return std::nullopt;
  std::vector<std::int32_t> sums = {0};
  for (const std::int32_t length : lengths) sums.push_back(sums.back() + length);
  return Tensor::int32(sums);
}

}  // namespace

Call::Call(const CallShape& s, std::uint64_t seed)
    : q(Tensor::random(s.dtype, rows(s.packed_q, s.batch, s.seqlen_q, s.num_heads, s.head_dim),
                       4 * seed)),
      k(Tensor::random(s.dtype, rows(s.packed_k, s.batch, s.seqlen_k, s.num_heads_k, s.head_dim),
                       4 * seed + 1)),
      v(Tensor::random(s.dtype, rows(s.packed_k, s.batch, s.seqlen_k, s.num_heads_k, s.head_dim_v),
                       4 * seed + 2)),
      out(s.dtype, rows(s.packed_q, s.batch, s.seqlen_q, s.num_heads, s.head_dim_v)),
      lse(DType::kFloat32, lse_shape(s)),
      cu_seqlens_q(cu_seqlens(s.packed_q)),
      cu_seqlens_k(cu_seqlens(s.packed_k)) {
  tensors.q = q;
  tensors.k = k;
  tensors.v = v;
  tensors.out = out;
  tensors.lse = lse;
  if (cu_seqlens_q) tensors.cu_seqlens_q = *cu_seqlens_q;
  if (cu_seqlens_k) tensors.cu_seqlens_k = *cu_seqlens_k;
}

}  // namespace parapet::testing
