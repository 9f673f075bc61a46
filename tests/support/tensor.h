#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <vector>

#include "parapet/tensor.h"

namespace parapet::testing {

using Extents = std::vector<std::int64_t>;

// Elements of a view by their number in C order, whatever the strides.
double get(const TensorView& view, std::int64_t index);
void set(const TensorView& view, std::int64_t index, double value);

// A tensor in an allocation of exactly its size, so that the address sanitizer sees an access
// beyond its first or last element. Starts filled with NaN (of int32: with a number that no length
// has), so that what was read without being written, or not written at all, shows.
class Tensor {
 public:
  // C order.
  Tensor(DType dtype, const Extents& shape);
  // Any strides, negative ones included; the allocation reaches from the lowest element to the
  // highest. `strides` count elements.
  Tensor(DType dtype, const Extents& shape, const Extents& strides);

  // Values from -1 to 1, the same for a seed on every machine, rounded to the dtype.
  static Tensor random(DType dtype, const Extents& shape, std::uint64_t seed);
  static Tensor int32(std::initializer_list<std::int32_t> values);
  static Tensor int32(const std::vector<std::int32_t>& values);

  const TensorView& view() const { return view_; }
  operator const TensorView&() const { return view_; }

  std::int64_t size() const { return view_.num_elements(); }
  double get(std::int64_t index) const { return testing::get(view_, index); }
  void set(std::int64_t index, double value) { testing::set(view_, index, value); }

  void fill(double value);
  void fill_random(std::uint64_t seed);

  // The allocation, as it lies in memory.
  std::span<const std::byte> bytes() const { return {data_.get(), num_bytes_}; }

 private:
  std::size_t num_bytes_ = 0;
  std::unique_ptr<std::byte[]> data_;
  TensorView view_;
};

}  // namespace parapet::testing
