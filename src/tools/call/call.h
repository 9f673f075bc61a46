#pragma once

#include <cstdint>
#include <optional>

#include "parapet/attention.h"
#include "tools/call/tensor.h"

namespace parapet::tools {

// What a call gives.
struct Result {
  Tensor out;
  std::optional<Tensor> lse;
};

// One attention call with the memory of its arguments.
struct Call {
  // The shapes of out and lse that q and v imply. Of tensors that imply none, which make_problem
  // refuses, they are empty.
  Shape out_shape() const;
  Shape lse_shape() const;
  // Room for a result with lse.
  Result make_result() const;
  // As `forward` takes it.
  ForwardTensors with(const Result& result) const;

  Tensor q = {};
  Tensor k = {};
  Tensor v = {};
  std::optional<Tensor> cu_seqlens_q = {};
  std::optional<Tensor> cu_seqlens_k = {};
  std::optional<Tensor> seqused_q = {};
  std::optional<Tensor> seqused_k = {};
  std::optional<Tensor> learnable_sink = {};
  ForwardOptions options = {};
};

// So that numbers which a call does not write do not pass for right ones.
void fill_with_nan(const Result& result);

// Fills a tensor with random numbers from the standard normal distribution: about 4096 different
// ones. The same seed gives the same numbers, for any number of threads.
void fill_normal(const Tensor& tensor, std::uint64_t seed);

}  // namespace parapet::tools
