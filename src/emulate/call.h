#pragma once

#include <string>

#include "kernels/arch/platform.h"

namespace parapet::emulate {

using kernels::arch::u16;
using kernels::arch::u32;
using kernels::arch::u64;
using kernels::arch::u8;

inline constexpr u32 kWarp = 32;  // lanes

struct Block;
struct Thread;

// Which instruction, called where in the kernel.
struct Call {
  const char* instruction = "";
  kernels::arch::Site site{};

  // "load_matrices at warp.h:173"
  std::string text() const;
};

// Stops the launch: throws a Fault whose text begins with the running thread's block and seed.
[[noreturn]] void fault(const std::string& text);

// The same for what the running thread did: "CALL, thread 5: TEXT".
[[noreturn]] void fault(const Call& call, const std::string& text);

}  // namespace parapet::emulate
