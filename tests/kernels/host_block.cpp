#include "host_block.h"

#include <barrier>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "kernels/arch/memory.h"
#include "kernels/arch/thread.h"

namespace parapet::test {
namespace {

struct Block {
  Block(unsigned threads, std::size_t shared_bytes)
      : meeting(threads), shared(shared_bytes), exchanged(threads) {
    for (unsigned warp = 0; warp < threads / 32; ++warp)
      warp_meetings.push_back(std::make_unique<std::barrier<>>(32));
  }

  std::barrier<> meeting;
  std::vector<std::unique_ptr<std::barrier<>>> warp_meetings;
  std::mutex atomics;
  std::vector<std::byte> shared;
  std::vector<int> exchanged;
};

Block* block = nullptr;
thread_local unsigned thread = 0;

template <class T>
T read(kernels::arch::u32 from) {
  T x;
  std::memcpy(&x, &block->shared.at(from + sizeof(T) - 1) - (sizeof(T) - 1), sizeof(T));
  return x;
}

template <class T>
void write(kernels::arch::u32 to, T x) {
  std::memcpy(&block->shared.at(to + sizeof(T) - 1) - (sizeof(T) - 1), &x, sizeof(T));
}

}  // namespace

void run_block(unsigned threads, std::size_t shared_bytes, const std::function<void()>& kernel) {
  Block here(threads, shared_bytes);
  block = &here;
  std::vector<std::jthread> team;
  for (unsigned i = 0; i < threads; ++i)
    team.emplace_back([&kernel, i] {
      thread = i;
      kernel();
    });
  team.clear();
  block = nullptr;
}

}  // namespace parapet::test

namespace parapet::kernels::arch {

using test::block;
using test::read;
using test::thread;
using test::write;

u32 thread_index() {
  return thread;
}
u32 shared_memory() {
  return 0;
}
void sync_block(Site) {
  block->meeting.arrive_and_wait();
}

int shuffle_up(int x, u32 distance, Site) {
  block->exchanged[thread] = x;
  std::barrier<>& meeting = *block->warp_meetings[thread / 32];
  meeting.arrive_and_wait();
  const int result = thread % 32 >= distance ? block->exchanged[thread - distance] : x;
  meeting.arrive_and_wait();
  return result;
}

u32 load_shared(u32 from, Site) {
  return read<u32>(from);
}
void store_shared(u32 to, u32 x, Site) {
  write(to, x);
}
u64 load_shared_u64(u32 from, Site) {
  return read<u64>(from);
}
void store_shared_u64(u32 to, u64 x, Site) {
  write(to, x);
}

u32 add_shared(u32 to, u32 x, Site) {
  const std::lock_guard lock(block->atomics);
  const u32 before = read<u32>(to);
  write(to, before + x);
  return before;
}

void min_shared(u32 to, u64 x, Site) {
  const std::lock_guard lock(block->atomics);
  if (x < read<u64>(to)) write(to, x);
}

u32 load_global_u32(const void* from, Site) {
  u32 x;
  std::memcpy(&x, from, sizeof(x));
  return x;
}
void store_global_u32(void* to, u32 x, Site) {
  std::memcpy(to, &x, sizeof(x));
}
void store_global_unit(void* to, Unit x, Site) {
  std::memcpy(to, &x, sizeof(x));
}

}  // namespace parapet::kernels::arch
