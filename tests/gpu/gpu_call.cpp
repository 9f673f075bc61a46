#include "gpu/gpu_call.h"

namespace parapet::testing {
namespace {

std::unique_ptr<GpuTensor> upload(const std::optional<Tensor>& host, Fence fence) {
  return host ? std::make_unique<GpuTensor>(*host, fence) : nullptr;
}

std::ptrdiff_t offset_in_memory(const Tensor& tensor) {
  return static_cast<const std::byte*>(tensor.view().data) - tensor.bytes().data();
}

}  // namespace

GpuTensor::GpuTensor(const Tensor& host, Fence fence)
    : memory_(host.bytes().size(), fence), view_(host.view()) {
  view_.data = memory_.data() + offset_in_memory(host);
  view_.device = {DeviceType::kCuda, 0};
  upload(host);
}

void GpuTensor::upload(const Tensor& host) const {
  copy_to_device(memory_.data(), host.bytes().data(), host.bytes().size());
}

void GpuTensor::upload(const Tensor& host, const cuda::Stream& stream) const {
  copy_to_device(memory_.data(), host.bytes().data(), host.bytes().size(), stream);
}

void GpuTensor::download(Tensor& host) const {
  copy_to_host(static_cast<std::byte*>(host.view().data) - offset_in_memory(host), memory_.data(),
               host.bytes().size());
}

GpuCall::GpuCall(const HostCall& host, Fence fence)
    : options(host.options),
      q(host.q, fence),
      k(host.k, fence),
      v(host.v, fence),
      out(host.out, fence),
      lse(host.lse, fence),
      cu_seqlens_q(testing::upload(host.cu_seqlens_q, fence)),
      cu_seqlens_k(testing::upload(host.cu_seqlens_k, fence)),
      seqused_q(testing::upload(host.seqused_q, fence)),
      seqused_k(testing::upload(host.seqused_k, fence)),
      sink(testing::upload(host.sink, fence)) {}

ForwardTensors GpuCall::tensors() const {
  return tensors_of(*this);
}

void GpuCall::run(void* stream) const {
  ForwardOptions with_stream = options;
  with_stream.stream = stream;
  forward(tensors(), with_stream);
}

void GpuCall::download(HostCall& host) const {
  Device::instance().context().synchronize();
  out.download(host.out);
  lse.download(host.lse);
}

}  // namespace parapet::testing
