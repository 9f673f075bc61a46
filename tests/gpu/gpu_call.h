#pragma once

#include <memory>

#include "gpu/device.h"
#include "support/host_call.h"

namespace parapet::testing {

// A copy of a host tensor's memory in a fence on the GPU.
class GpuTensor {
 public:
  GpuTensor(const Tensor& host, Fence fence);

  TensorView view() const { return view_; }
  void upload(const Tensor& host) const;
  void upload(const Tensor& host, const cuda::Stream& stream) const;
  void download(Tensor& host) const;

 private:
  FencedMemory memory_;
  TensorView view_;
};

// The call in the GPU's memory.
class GpuCall {
 public:
  GpuCall(const HostCall& host, Fence fence);

  // Queues the call.
  void run(void* stream = nullptr) const;
  // Waits, and copies out and lse to `host`.
  void download(HostCall& host) const;
  ForwardTensors tensors() const;

  ForwardOptions options;
  GpuTensor q, k, v, out, lse;
  std::unique_ptr<GpuTensor> cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k, sink;
};

}  // namespace parapet::testing
