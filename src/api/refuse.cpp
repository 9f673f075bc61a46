#include "api/refuse.h"

#include <array>
#include <cstdint>

namespace parapet::api {
namespace {

using Numbers = std::array<std::int64_t, TensorView::kMaxRank>;

std::string tuple_text(const Numbers& numbers, int count) {
  if (count < 0 || count > TensorView::kMaxRank) return fmt::format("rank {}", count);
  std::string text = "(";
  for (int i = 0; i < count; ++i) text += fmt::format("{}{}", i == 0 ? "" : ", ", numbers[i]);
  return text + (count == 1 ? ",)" : ")");
}

}  // namespace

std::string shape_text(const TensorView& view) {
  return tuple_text(view.shape, view.rank);
}
std::string strides_text(const TensorView& view) {
  return tuple_text(view.strides, view.rank);
}

std::string device_text(Device device) {
  return device.type == DeviceType::kCpu ? "cpu" : fmt::format("cuda:{}", device.index);
}

}  // namespace parapet::api
