#pragma once

#include <cstdint>
#include <functional>
#include <stdexcept>
#include <vector>

// Runs kernels on the host, every thread of a block as a fibre, so that sanitizers, debuggers and
// the checks below see each thread. The schedule, and when asynchronous copies land, come from a
// seed.

namespace parapet::emulate {

// What a kernel did wrong: a race, a deadlock, lanes that went apart, an access outside its memory.
// The text names the threads and the kernel's lines.
class Fault : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Global memory that a block may touch: `rows` pieces of `bytes` bytes, `stride` bytes apart.
struct Window {
  const char* name;
  const void* data;
  std::int64_t bytes;
  std::int64_t rows = 1;
  std::int64_t stride = 0;
  bool writable = false;
};

struct Launch {
  std::int64_t blocks = 1;
  int threads = 32;  // of a block: whole warps
  int shared_bytes = 0;
  std::uint64_t seed = 1;
  // The only memory that an instruction of block `block` may touch. Without it any.
  std::function<std::vector<Window>(std::int64_t block)> windows{};
};

// Calls `kernel` as each thread of each block, one block after another in an order drawn from the
// seed. Throws the first Fault.
void launch(const Launch& launch, const std::function<void()>& kernel);

}  // namespace parapet::emulate
