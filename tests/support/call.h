#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "parapet/attention.h"
#include "support/tensor.h"

namespace parapet::testing {

struct CallShape {
  DType dtype = DType::kFloat32;
  std::int64_t batch = 2;  // of dense tensors; packed ones take it from their lengths
  std::int64_t seqlen_q = 3;
  std::int64_t seqlen_k = 5;
  std::int64_t num_heads = 4;
  std::int64_t num_heads_k = 2;
  std::int64_t head_dim = 8;
  std::int64_t head_dim_v = 6;
  std::vector<std::int32_t> packed_q{};  // lengths of packed segments; none: dense
  std::vector<std::int32_t> packed_k{};
};

// A valid call with random q, k and v, and lse. Tests change `tensors` and `options` to their
// needs.
struct Call {
  explicit Call(const CallShape& shape = {}, std::uint64_t seed = 1);
  // `tensors` points into the members.
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  void run() const { forward(tensors, options); }

  Tensor q, k, v, out, lse;
  std::optional<Tensor> cu_seqlens_q, cu_seqlens_k;
  ForwardTensors tensors;
  ForwardOptions options;
};

}  // namespace parapet::testing
