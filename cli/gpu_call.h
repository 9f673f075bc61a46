#pragma once

#include <optional>
#include <vector>

#include "parapet/attention.h"
#include "parapet/info.h"

// Calls on a GPU by a program without a framework.

namespace parapet::cli {

// The first GPU that parapet runs on. Throws Error(kRuntime) where there is none.
GpuInfo first_gpu();

// The same tensors in a GPU's memory.
class GpuCall {
 public:
  // `host` has contiguous tensors and no lse.
  GpuCall(const ForwardTensors& host, int gpu);
  ~GpuCall();
  GpuCall(const GpuCall&) = delete;
  GpuCall& operator=(const GpuCall&) = delete;

  // Computes and waits.
  void run(const ForwardOptions& options) const;
  // Copies out to the host's tensor.
  void download() const;

 private:
  TensorView upload(const TensorView& tensor);
  std::optional<TensorView> upload(const std::optional<TensorView>& tensor);

  int gpu_;
  std::vector<void*> memory_;
  TensorView host_out_;
  ForwardTensors tensors_;
};

}  // namespace parapet::cli
