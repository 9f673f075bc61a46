#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "parapet/tensor.h"

namespace parapet::tools {

using Shape = std::vector<std::int64_t>;

// Bytes of a tensor. Throws Error(kInvalidArgument) when its elements or bytes pass 2^63.
std::int64_t bytes_of(DType dtype, std::span<const std::int64_t> shape);

// A tensor that owns its memory: C order, aligned to 64 bytes, ending exactly at its last element.
class Tensor {
 public:
  Tensor() = default;
  // Throws Error(kRuntime) when there is no memory. The elements are not initialised.
  Tensor(DType dtype, const Shape& shape);

  const TensorView& view() const { return view_; }
  DType dtype() const { return view_.dtype; }
  Shape shape() const { return {view_.shape.begin(), view_.shape.begin() + view_.rank}; }
  std::span<std::byte> bytes() const {
    return {memory_.get(), static_cast<std::size_t>(num_bytes_)};
  }

  // Elements as T, which has the dtype's size.
  template <class T>
  std::span<T> elements() const {
    return {reinterpret_cast<T*>(memory_.get()), static_cast<std::size_t>(num_bytes_) / sizeof(T)};
  }

 private:
  struct Free {
    void operator()(std::byte* memory) const;
  };

  TensorView view_;
  std::int64_t num_bytes_ = 0;
  std::unique_ptr<std::byte, Free> memory_;
};

// An int32 tensor of one dimension.
Tensor int32_tensor(std::span<const std::int32_t> values);

// Elements [begin, begin + length) of a dimension.
TensorView slice(TensorView view, int dim, std::int64_t begin, std::int64_t length);

}  // namespace parapet::tools
