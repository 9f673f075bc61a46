#include "kernels/arch/memory.h"

#include <algorithm>
#include <cstring>

#include "emulate/block.h"
#include "emulate/global_memory.h"

namespace parapet::kernels::arch {
namespace {

using emulate::Access;
using emulate::Block;
using emulate::Call;
using emulate::Thread;

Block& block() {
  return Thread::current().block;
}

template <class T>
T load(u32 from, const Call& call) {
  T x;
  block().shared.read(from, &x, sizeof(T), call);
  return x;
}

template <class T>
void store(u32 to, const T& x, const Call& call) {
  block().shared.write(to, &x, sizeof(T), call);
}

// Returns the value before.
template <class T, class Change>
T change(u32 to, const Call& call, const Change& to_new) {
  std::byte* const at = block().shared.access(to, sizeof(T), Access::kAtomic, call);
  T before;
  std::memcpy(&before, at, sizeof(T));
  const T after = to_new(before);
  std::memcpy(at, &after, sizeof(T));
  return before;
}

template <class T>
T load_global(const void* from, const Call& call) {
  emulate::check_read(from, sizeof(T), call);
  T x;
  std::memcpy(&x, from, sizeof(T));
  return x;
}

template <class T>
void store_global(void* to, const T& x, const Call& call) {
  emulate::check_write(to, sizeof(T), call);
  std::memcpy(to, &x, sizeof(T));
}

}  // namespace

u32 shared_memory() {
  return emulate::SharedMemory::kBase;
}

u32 load_shared(u32 from, Site site) {
  return load<u32>(from, {__func__, site});
}
Unit load_shared_unit(u32 from, Site site) {
  return load<Unit>(from, {__func__, site});
}
u64 load_shared_u64(u32 from, Site site) {
  return load<u64>(from, {__func__, site});
}

void store_shared(u32 to, u32 x, Site site) {
  store(to, x, {__func__, site});
}
void store_shared_unit(u32 to, Unit x, Site site) {
  store(to, x, {__func__, site});
}
void store_shared_u64(u32 to, u64 x, Site site) {
  store(to, x, {__func__, site});
}

u32 add_shared(u32 to, u32 x, Site site) {
  return change<u32>(to, {__func__, site}, [&](u32 before) { return before + x; });
}
void min_shared(u32 to, u64 x, Site site) {
  change<u64>(to, {__func__, site}, [&](u64 before) { return std::min(before, x); });
}

u16 load_global_u16(const void* from, Site site) {
  return load_global<u16>(from, {__func__, site});
}
u32 load_global_u32(const void* from, Site site) {
  return load_global<u32>(from, {__func__, site});
}
float load_global_float(const void* from, Site site) {
  return load_global<float>(from, {__func__, site});
}
HalfUnit load_global_half_unit(const void* from, bool valid, Site site) {
  return valid ? load_global<HalfUnit>(from, {__func__, site}) : HalfUnit{};
}
Unit load_global_unit(const void* from, Site site) {
  return load_global<Unit>(from, {__func__, site});
}

void store_global_u16(void* to, u16 x, Site site) {
  store_global(to, x, {__func__, site});
}
void store_global_u32(void* to, u32 x, Site site) {
  store_global(to, x, {__func__, site});
}
void store_global_float(void* to, float x, Site site) {
  store_global(to, x, {__func__, site});
}
void store_global_half_unit(void* to, HalfUnit x, Site site) {
  store_global(to, x, {__func__, site});
}
void store_global_unit(void* to, Unit x, Site site) {
  store_global(to, x, {__func__, site});
}

// Only a hint on hardware, but what it asks for should exist.
void prefetch(const void* from, Site site) {
  emulate::check_read(from, 1, {__func__, site});
}

// Reads at once, so that a report shows the kernel's call; nobody writes what kernels copy.
void copy_unit_async(u32 to, const void* from, bool valid, Site site) {
  const Call call{__func__, site};
  block().shared.access(to, sizeof(Unit), Access::kCopy, call);
  block().barriers.add_copy(to, valid ? load_global<Unit>(from, call) : Unit{});
}
void wait_for_copies(Site) {
  block().barriers.wait_for_copies();
}

}  // namespace parapet::kernels::arch
