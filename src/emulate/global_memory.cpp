#include "emulate/global_memory.h"

#include <fmt/format.h>

#include <algorithm>

#include "emulate/block.h"

namespace parapet::emulate {
namespace {

// How far [address, address + bytes) is from the nearest piece of a window: 0 if it lies in one,
// negative before it, positive behind it.
std::int64_t distance(const Window& window, std::intptr_t address, std::int64_t bytes) {
  if (window.rows == 0 || window.bytes == 0) return INT64_MAX;
  std::intptr_t first = reinterpret_cast<std::intptr_t>(window.data);
  std::int64_t stride = window.stride;
  if (stride < 0) {
    first += stride * (window.rows - 1);
    stride = -stride;
  }
  const std::int64_t offset = address - first;
  const std::int64_t row =
      stride == 0 ? 0 : std::clamp(offset / stride, std::int64_t{0}, window.rows - 1);
  const std::int64_t in_row = offset - row * stride;
  if (in_row < 0) return in_row;
  return std::max(in_row + bytes - window.bytes, std::int64_t{0});
}

void check(const void* pointer, std::size_t bytes, bool writes, const Call& call) {
  const auto address = reinterpret_cast<std::intptr_t>(pointer);
  if (address % static_cast<std::intptr_t>(bytes) != 0)
    fault(call, fmt::format("{} bytes of global memory at {}: misaligned", bytes, pointer));
  const Block& block = Thread::current().block;
  if (!block.launch.windows) return;
  std::int64_t nearest = INT64_MAX;
  const Window* beside = nullptr;
  for (const Window& window : block.windows) {
    if (writes && !window.writable) continue;
    const std::int64_t from = distance(window, address, static_cast<std::int64_t>(bytes));
    if (from == 0) return;
    if (std::abs(from) < nearest) {
      nearest = std::abs(from);
      beside = &window;
    }
  }
  fault(call, fmt::format("may not {} {} bytes of global memory at {}, {} bytes beside {}",
                          writes ? "write" : "read", bytes, pointer, nearest,
                          beside == nullptr ? "nothing" : beside->name));
}

}  // namespace

void check_read(const void* from, std::size_t bytes, const Call& call) {
  check(from, bytes, false, call);
}

void check_write(void* to, std::size_t bytes, const Call& call) {
  check(to, bytes, true, call);
}

}  // namespace parapet::emulate
