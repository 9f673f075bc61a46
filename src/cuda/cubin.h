#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace parapet::cuda {

// What a kernel takes of a multiprocessor, as the machine code itself says.
struct KernelResources {
  int registers = 0;              // a thread
  std::int64_t local_bytes = 0;   // of local memory a thread: spilled registers and indexed arrays
  std::int64_t shared_bytes = 0;  // a block, without what a launch adds
  std::int64_t parameter_bytes = 0;
};

// Reads a cubin (an ELF file) that holds the kernel `name`. Throws Error(kRuntime) where it is
// malformed or holds no such kernel; whatever the bytes are, nothing outside them is read.
KernelResources read_resources(std::string_view cubin, const std::string& name);

}  // namespace parapet::cuda
