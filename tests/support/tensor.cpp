#include "support/tensor.h"

#include <algorithm>
#include <limits>
#include <random>

#include "tools/oracle/element.h"

namespace parapet::testing {
namespace {

constexpr std::int32_t kNoLength = -0x5A5A5A5A;

Extents c_order(const Extents& shape) {
  const TensorView view = TensorView::contiguous(nullptr, DType::kFloat32, shape);
  return {view.strides.begin(), view.strides.begin() + view.rank};
}

std::int64_t offset(const TensorView& view, std::int64_t index) {
  std::int64_t offset = 0;
  for (int dim = view.rank - 1; dim >= 0; --dim) {
    offset += index % view.shape[dim] * view.strides[dim];
    index /= view.shape[dim];
  }
  return offset;
}

}  // namespace

double get(const TensorView& view, std::int64_t index) {
  if (view.dtype == DType::kInt32) {
    return static_cast<const std::int32_t*>(view.data)[offset(view, index)];
  }
  return oracle::load(view.data, view.dtype, offset(view, index));
}

void set(const TensorView& view, std::int64_t index, double value) {
  if (view.dtype == DType::kInt32) {
    static_cast<std::int32_t*>(view.data)[offset(view, index)] = static_cast<std::int32_t>(value);
  } else {
    oracle::store(view.data, view.dtype, offset(view, index), value);
  }
}

Tensor::Tensor(DType dtype, const Extents& shape) : Tensor(dtype, shape, c_order(shape)) {}

Tensor::Tensor(DType dtype, const Extents& shape, const Extents& strides)
    : view_(TensorView::contiguous(nullptr, dtype, shape)) {
  std::ranges::copy(strides, view_.strides.begin());
  std::int64_t lowest = 0, highest = -1;
  if (size() > 0) {
    highest = 0;
    for (int dim = 0; dim < view_.rank; ++dim) {
      const std::int64_t reach = view_.strides[dim] * (view_.shape[dim] - 1);
      (reach < 0 ? lowest : highest) += reach;
    }
  }
  num_bytes_ = static_cast<std::size_t>((highest + 1 - lowest) * size_of(dtype));
  data_ = std::make_unique<std::byte[]>(num_bytes_);
  view_.data = data_.get() - lowest * size_of(dtype);
  fill(dtype == DType::kInt32 ? kNoLength : std::numeric_limits<double>::quiet_NaN());
}

Tensor Tensor::random(DType dtype, const Extents& shape, std::uint64_t seed) {
  Tensor tensor(dtype, shape);
  tensor.fill_random(seed);
  return tensor;
}

Tensor Tensor::int32(std::initializer_list<std::int32_t> values) {
  return int32(std::vector<std::int32_t>(values));
}

Tensor Tensor::int32(const std::vector<std::int32_t>& values) {
  Tensor tensor(DType::kInt32, {static_cast<std::int64_t>(values.size())});
  std::ranges::copy(values, static_cast<std::int32_t*>(tensor.view_.data));
  return tensor;
}

void Tensor::fill(double value) {
  for (std::int64_t i = 0; i < size(); ++i) set(i, value);
}

void Tensor::fill_random(std::uint64_t seed) {
  std::mt19937_64 generator(seed);
  for (std::int64_t i = 0; i < size(); ++i) {
    set(i, static_cast<double>(generator() >> 11) * 0x1p-52 - 1.0);
  }
}

}  // namespace parapet::testing
