#include "kernels/arch/thread.h"

#include <fmt/format.h>

#include <algorithm>

#include "emulate/block.h"

namespace parapet::kernels::arch {
namespace {

using emulate::Call;
using emulate::kWarp;
using emulate::Thread;
using emulate::with_warp;

// Every lane gets the value of the lane it names.
template <class T>
T exchange(T x, u32 from, const Call& call) {
  struct Operands {
    T x;
    u32 from;
  } mine{x, from};
  with_warp(call, mine, [](const auto& lanes) {
    T given[kWarp];
    for (u32 i = 0; i < kWarp; ++i) given[i] = lanes[i]->x;
    for (Operands* lane : lanes) lane->x = given[lane->from % kWarp];
  });
  return mine.x;
}

}  // namespace

u32 thread_index() {
  return Thread::current().index;
}
u32 thread_index_again() {
  return thread_index();
}
int opaque(int x) {
  return x;
}
const void* opaque(const void* x) {
  return x;
}
u32 block_index() {
  return Thread::current().block.index;
}

u32 block_count() {
  return static_cast<u32>(Thread::current().block.launch.blocks);
}

void sync_block(Site site) {
  emulate::sync_block({__func__, site});
}
void sync_warp(Site site) {
  emulate::sync_warp({__func__, site});
}

bool any_in_warp(bool x, Site site) {
  with_warp({__func__, site}, x, [](const auto& lanes) {
    const bool any =
        std::any_of(lanes.begin(), lanes.end(), [](const bool* lane) { return *lane; });
    for (bool* lane : lanes) *lane = any;
  });
  return x;
}

int uniform(int x, Site site) {
  const Call call{__func__, site};
  with_warp(call, x, [&](const auto& lanes) {
    for (const int* lane : lanes)
      if (*lane != x) emulate::fault(call, fmt::format("lanes disagree: {} and {}", *lane, x));
  });
  return x;
}

float shuffle_xor(float x, u32 mask, Site site) {
  return exchange(x, Thread::current().lane() ^ mask, {__func__, site});
}
u32 shuffle_xor(u32 x, u32 mask, Site site) {
  return exchange(x, Thread::current().lane() ^ mask, {__func__, site});
}
int shuffle_up(int x, u32 distance, Site site) {
  const u32 lane = Thread::current().lane();
  return exchange(x, lane < distance ? lane : lane - distance, {__func__, site});
}
u32 shuffle(u32 x, u32 lane, Site site) {
  return exchange(x, lane, {__func__, site});
}

}  // namespace parapet::kernels::arch
