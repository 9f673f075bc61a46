#include "parapet/tensor.h"

#include <algorithm>

#include "api/refuse.h"

namespace parapet {

std::int64_t size_of(DType dtype) noexcept {
  switch (dtype) {
    case DType::kFloat32:
    case DType::kInt32:
      return 4;
    case DType::kFloat16:
    case DType::kBFloat16:
      return 2;
  }
  return 0;
}

std::string_view name_of(DType dtype) noexcept {
  switch (dtype) {
    case DType::kFloat32:
      return "float32";
    case DType::kFloat16:
      return "float16";
    case DType::kBFloat16:
      return "bfloat16";
    case DType::kInt32:
      return "int32";
  }
  return "unknown";
}

TensorView TensorView::contiguous(void* data, DType dtype, std::span<const std::int64_t> shape,
                                  Device device) {
  if (shape.size() > kMaxRank) {
    api::refuse("shape: expected at most {} dimensions, found {}", kMaxRank, shape.size());
  }
  TensorView view{data, dtype, device, static_cast<int>(shape.size()), {}, {}};
  std::ranges::copy(shape, view.shape.begin());
  std::int64_t stride = 1;
  for (int dim = view.rank - 1; dim >= 0; --dim) {
    if (shape[dim] < 0) {
      api::refuse("shape[{}]: expected at least 0, found {}", dim, shape[dim]);
    }
    view.strides[dim] = stride;
    // An extent of 0 leaves no element to stride over; 1 keeps the outer strides distinct.
    if (__builtin_mul_overflow(stride, std::max<std::int64_t>(shape[dim], 1), &stride)) {
      api::refuse("shape: expected fewer than 2^63 elements, found {}", api::shape_text(view));
    }
  }
  return view;
}

}  // namespace parapet
