#include "tools/call/tensor.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>

#include "parapet/error.h"

namespace parapet::tools {
namespace {

constexpr std::align_val_t kAlignment{64};

}  // namespace

std::int64_t bytes_of(DType dtype, std::span<const std::int64_t> shape) {
  std::int64_t bytes = size_of(dtype);
  for (const std::int64_t extent : shape) {
    if (__builtin_mul_overflow(bytes, extent, &bytes)) {
      throw Error(ErrorCode::kInvalidArgument, "shape: expected fewer than 2^63 bytes, found more");
    }
  }
  return bytes;
}

void Tensor::Free::operator()(std::byte* memory) const {
  ::operator delete(memory, kAlignment);
}

Tensor::Tensor(DType dtype, const Shape& shape) : num_bytes_(bytes_of(dtype, shape)) {
  void* memory = ::operator new(static_cast<std::size_t>(num_bytes_), kAlignment, std::nothrow);
  if (memory == nullptr) {
    throw Error(ErrorCode::kRuntime, fmt::format("no memory for a tensor of {} bytes", num_bytes_));
  }
  memory_.reset(static_cast<std::byte*>(memory));
  view_ = TensorView::contiguous(memory, dtype, shape);
}

Tensor int32_tensor(std::span<const std::int32_t> values) {
  Tensor tensor(DType::kInt32, {static_cast<std::int64_t>(values.size())});
  std::copy(values.begin(), values.end(), tensor.elements<std::int32_t>().begin());
  return tensor;
}

TensorView slice(TensorView view, int dim, std::int64_t begin, std::int64_t length) {
  view.data = static_cast<std::byte*>(view.data) + begin * view.strides[dim] * size_of(view.dtype);
  view.shape[dim] = length;
  return view;
}

}  // namespace parapet::tools
