#pragma once

#include <cstddef>
#include <memory>

#include "emulate/race_check.h"

namespace parapet::emulate {

// A block's dynamic shared memory, by the 32-bit addresses that instructions use. Filled with NaNs
// at first.
class SharedMemory {
 public:
  static constexpr u32 kBase = 1024;  // its address: 0 stays invalid

  SharedMemory(Block& block, u32 bytes);

  // What the running thread does: checks bounds, alignment to the size and races.
  void read(u32 from, void* to, u32 bytes, const Call& call);
  void write(u32 to, const void* from, u32 bytes, const Call& call);
  // The same for what the caller then does itself.
  std::byte* access(u32 address, u32 bytes, Access kind, const Call& call);
  // For what was checked when it was issued.
  std::byte* at(u32 address) const { return bytes_.get() + (address - kBase); }

 private:
  void check_bounds(u32 address, u32 bytes, const Call& call) const;

  struct Free {
    void operator()(std::byte* memory) const;
  };

  Block& block_;
  u32 size_;
  std::unique_ptr<std::byte, Free> bytes_;
};

}  // namespace parapet::emulate
