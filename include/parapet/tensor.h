#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>

#include "parapet/export.h"

namespace parapet {

enum class DType : std::uint8_t { kFloat32, kFloat16, kBFloat16, kInt32 };

// Bytes of one element.
PARAPET_EXPORT std::int64_t size_of(DType dtype) noexcept;
// "float32", "float16", "bfloat16" or "int32".
PARAPET_EXPORT std::string_view name_of(DType dtype) noexcept;

enum class DeviceType : std::uint8_t { kCpu, kCuda };

struct Device {
  DeviceType type = DeviceType::kCpu;
  int index = 0;

  friend bool operator==(const Device&, const Device&) = default;
};

// A tensor that somebody else owns. Shape and strides count elements; the strides may be anything,
// negative and zero included, where the function that takes the tensor does not say otherwise.
struct TensorView {
  static constexpr int kMaxRank = 4;

  // A view of densely packed (C order) elements. Throws Error(kInvalidArgument) for more dimensions
  // than kMaxRank, negative extents and 2^63 elements or more.
  PARAPET_EXPORT static TensorView contiguous(void* data, DType dtype,
                                              std::span<const std::int64_t> shape,
                                              Device device = {});
  static TensorView contiguous(void* data, DType dtype, std::initializer_list<std::int64_t> shape,
                               Device device = {}) {
    return contiguous(data, dtype, std::span(shape.begin(), shape.size()), device);
  }

  // For extents whose product fits.
  std::int64_t num_elements() const noexcept {
    for (int dim = 0; dim < rank; ++dim) {
      if (shape[dim] == 0) return 0;
    }
    std::int64_t count = 1;
    for (int dim = 0; dim < rank; ++dim) count *= shape[dim];
    return count;
  }

  void* data = nullptr;
  DType dtype = DType::kFloat32;
  Device device;
  int rank = 0;
  std::array<std::int64_t, kMaxRank> shape{};
  std::array<std::int64_t, kMaxRank> strides{};
};

}  // namespace parapet
