#include "ffi/tensors.h"

#include <algorithm>
#include <cstdint>
#include <new>
#include <vector>

#include "cuda/memory.h"
#include "ffi/errors.h"

namespace parapet::ffi {

namespace {

bool is_on_gpu(DLDevice device) {
  return device.device_type == kDLCUDA;
}

struct Allocator {
  static constexpr std::size_t kAlignment = 64;

  void AllocData(DLTensor* tensor) {
    const std::size_t bytes = tvm::ffi::GetDataSize(*tensor);
    tensor->data = is_on_gpu(tensor->device)
                       ? cuda::allocate(tensor->device.device_id, static_cast<std::int64_t>(bytes))
                       : ::operator new(bytes, std::align_val_t{kAlignment});
  }
  void FreeData(DLTensor* tensor) {
    if (is_on_gpu(tensor->device)) {
      cuda::free(tensor->device.device_id, tensor->data);
    } else {
      ::operator delete(tensor->data, std::align_val_t{kAlignment});
    }
  }
};

std::int64_t element_bytes(const DLTensor& tensor) {
  return tensor.dtype.bits / 8;
}

// The bytes that a tensor's elements lie in, counted from its first element.
struct Extent {
  explicit Extent(const DLTensor& tensor) {
    for (int dim = 0; dim < tensor.ndim; ++dim) {
      const std::int64_t reach =
          (tensor.shape[dim] - 1) * tensor.strides[dim] * element_bytes(tensor);
      (reach < 0 ? begin : end) += reach;
    }
    end += element_bytes(tensor);
  }

  std::int64_t begin = 0;
  std::int64_t end = 0;
};

void copy_rows(const DLTensor& from, const char* source, int dim, char*& target) {
  if (dim == from.ndim || (dim == from.ndim - 1 && from.strides[dim] == 1)) {
    const std::int64_t bytes = element_bytes(from) * (dim == from.ndim ? 1 : from.shape[dim]);
    target = std::copy_n(source, bytes, target);
    return;
  }
  for (std::int64_t i = 0; i < from.shape[dim]; ++i) {
    copy_rows(from, source + i * from.strides[dim] * element_bytes(from), dim + 1, target);
  }
}

}  // namespace

tvm::ffi::Tensor empty(const tvm::ffi::Shape& shape, DLDataType dtype, DLDevice device) {
  return translating_errors(
      [&] { return tvm::ffi::Tensor::FromNDAlloc(Allocator(), shape, dtype, device); });
}

tvm::ffi::Tensor dense_bits(const tvm::ffi::Tensor& tensor) {
  const DLTensor& from = *tensor.GetDLTensorPtr();
  const auto copy = empty(tvm::ffi::Shape(tensor.shape()), DLDataType{kDLUInt, from.dtype.bits, 1},
                          DLDevice{kDLCPU, 0});
  if (tensor.numel() == 0) return copy;
  const char* source = static_cast<const char*>(from.data) + from.byte_offset;
  std::vector<char> on_host;
  if (is_on_gpu(from.device)) {
    const Extent extent(from);
    on_host.resize(static_cast<std::size_t>(extent.end - extent.begin));
    translating_errors([&] {
      cuda::copy_to_host(from.device.device_id, on_host.data(), source + extent.begin,
                         extent.end - extent.begin);
    });
    source = on_host.data() - extent.begin;
  }
  auto* target = static_cast<char*>(copy.data_ptr());
  copy_rows(from, source, 0, target);
  return copy;
}

}  // namespace parapet::ffi
