#pragma once

#include <cstdint>

namespace parapet::emulate {

// splitmix64: the same numbers for a seed on every machine.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint32_t below(std::uint32_t n) {
    std::uint64_t z = state_ += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return static_cast<std::uint32_t>(((z ^ (z >> 31)) >> 32) * n >> 32);
  }

 private:
  std::uint64_t state_;
};

}  // namespace parapet::emulate
