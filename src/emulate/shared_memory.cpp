#include "emulate/shared_memory.h"

#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <new>

#include "emulate/block.h"

namespace parapet::emulate {

void SharedMemory::Free::operator()(std::byte* memory) const {
  std::free(memory);
}

// An allocation of its own and of exactly its size: address sanitizer sees what the emulator itself
// does wrong.
SharedMemory::SharedMemory(Block& block, u32 bytes) : block_(block), size_(bytes) {
  void* memory = nullptr;
  if (posix_memalign(&memory, 1024, bytes) != 0) throw std::bad_alloc();
  bytes_.reset(static_cast<std::byte*>(memory));
  std::memset(memory, 0xff, bytes);
}

void SharedMemory::check_bounds(u32 address, u32 bytes, const Call& call) const {
  const u32 offset = address - kBase;
  if (offset > size_ || bytes > size_ - offset) {
    fault(call, fmt::format("{} bytes at shared memory + {} of {}", bytes, static_cast<int>(offset),
                            size_));
  }
  if (address % bytes != 0)
    fault(call, fmt::format("{} bytes at shared memory + {}: misaligned", bytes, offset));
}

std::byte* SharedMemory::access(u32 address, u32 bytes, Access kind, const Call& call) {
  check_bounds(address, bytes, call);
  block_.races.access(Thread::current(), address - kBase, bytes, kind, call);
  return at(address);
}

void SharedMemory::read(u32 from, void* to, u32 bytes, const Call& call) {
  std::memcpy(to, access(from, bytes, Access::kRead, call), bytes);
}

void SharedMemory::write(u32 to, const void* from, u32 bytes, const Call& call) {
  check_bounds(to, bytes, call);
  const bool same = std::memcmp(at(to), from, bytes) == 0;
  std::memcpy(access(to, bytes, same ? Access::kRewrite : Access::kWrite, call), from, bytes);
}

}  // namespace parapet::emulate
