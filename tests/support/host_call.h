#pragma once

#include <optional>
#include <string>
#include <vector>

#include "api/problem.h"
#include "parapet/attention.h"
#include "support/tensor.h"

namespace parapet::testing {

// How q, k, v and out lie in memory.
enum class Order {
  kRowsFirst,   // as the public layout: row, head, dim
  kHeadsFirst,  // head, row, dim: a transposed view
  kOddRows,     // rows an odd number of elements apart: nothing is aligned
  kReversed,    // rows in falling order: negative strides
};

// An attention call in words.
struct CallSpec {
  std::string text() const;

  DType dtype = DType::kBFloat16;
  std::int64_t head_dim = 64;
  std::int64_t head_dim_v = 64;
  std::int64_t heads = 2;
  std::int64_t heads_k = 2;
  std::vector<std::int32_t> q_lens{77, 0, 200, 1};
  std::vector<std::int32_t> k_lens{130, 65, 300, 0};
  bool packed = true;           // dense calls have the longest lengths, and the others as seqused
  std::int64_t extra_rows = 0;  // of packed tensors, behind what the lengths cover
  ForwardOptions options{};
  std::optional<DType> sink{};
  Order order = Order::kRowsFirst;
};

// The tensors of a call, in whichever memory it is, as forward() takes them.
template <class Call>
ForwardTensors tensors_of(const Call& call) {
  const auto view_of = [](const auto& tensor) {
    return tensor ? std::optional<TensorView>(tensor->view()) : std::nullopt;
  };
  return {.q = call.q.view(),
          .k = call.k.view(),
          .v = call.v.view(),
          .out = call.out.view(),
          .lse = call.lse.view(),
          .cu_seqlens_q = view_of(call.cu_seqlens_q),
          .cu_seqlens_k = view_of(call.cu_seqlens_k),
          .seqused_q = view_of(call.seqused_q),
          .seqused_k = view_of(call.seqused_k),
          .learnable_sink = view_of(call.sink)};
}

// The call in the host's memory.
class HostCall {
 public:
  HostCall(const CallSpec& spec, std::uint64_t seed);

  ForwardTensors tensors() const;
  // Lengths may be anything: they count as clamped.
  api::Problem problem() const;

  ForwardOptions options;
  Tensor q, k, v, out, lse;
  std::optional<Tensor> cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k, sink;
};

// Fails the test where out or lse of a call that ran differs from the oracle's, on any row, or
// where a row that nothing uses is not zero.
void expect_right(const HostCall& call, const std::string& what);

}  // namespace parapet::testing
