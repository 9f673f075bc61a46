#include "gpu_call.h"

#include <fmt/format.h>

#include "cuda/memory.h"
#include "parapet/error.h"

namespace parapet::cli {
namespace {

std::int64_t bytes_of(const TensorView& tensor) {
  return tensor.num_elements() * size_of(tensor.dtype);
}

}  // namespace

GpuInfo first_gpu() {
  const CudaInfo info = cuda_info();
  for (const GpuInfo& gpu : info.gpus) {
    if (gpu.supported) return gpu;
  }
  throw Error(
      ErrorCode::kRuntime,
      fmt::format("--device cuda: {}", !info.driver_problem.empty() ? info.driver_problem
                                       : info.gpus.empty()
                                           ? "the driver has no GPU"
                                           : "no GPU here is of compute capability 8.0 or newer"));
}

GpuCall::GpuCall(const ForwardTensors& host, int gpu)
    : gpu_(gpu),
      host_out_(host.out),
      tensors_{.q = upload(host.q),
               .k = upload(host.k),
               .v = upload(host.v),
               .out = upload(host.out),
               .cu_seqlens_q = upload(host.cu_seqlens_q),
               .cu_seqlens_k = upload(host.cu_seqlens_k),
               .seqused_q = upload(host.seqused_q),
               .seqused_k = upload(host.seqused_k),
               .learnable_sink = upload(host.learnable_sink)} {}

GpuCall::~GpuCall() {
  for (void* memory : memory_) cuda::free(gpu_, memory);
}

TensorView GpuCall::upload(const TensorView& tensor) {
  TensorView view = tensor;
  view.device = {DeviceType::kCuda, gpu_};
  view.data = memory_.emplace_back(cuda::allocate(gpu_, bytes_of(tensor)));
  cuda::copy_to_gpu(gpu_, view.data, tensor.data, bytes_of(tensor));
  return view;
}

std::optional<TensorView> GpuCall::upload(const std::optional<TensorView>& tensor) {
  return tensor ? std::optional(upload(*tensor)) : std::nullopt;
}

void GpuCall::run(const ForwardOptions& options) const {
  forward(tensors_, options);
  cuda::wait(gpu_);
}

void GpuCall::download() const {
  cuda::copy_to_host(gpu_, host_out_.data, tensors_.out.data, bytes_of(host_out_));
}

}  // namespace parapet::cli
