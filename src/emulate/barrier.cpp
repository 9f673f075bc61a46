#include "emulate/barrier.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "emulate/block.h"

namespace parapet::emulate {

// An mbarrier in its 8 bytes. The mark tells it from memory that was never initialised or that
// something else has overwritten.
struct Barriers::State {
  static constexpr u64 kMark = 1;
  static constexpr u32 kMaxCount = (1 << 20) - 1;

  u64 expected : 20;
  u64 missing : 20;
  u64 phase : 1;
  u64 unused : 21;
  u64 mark : 2;
};

// Late, late, now and then, early. Only late would hide a copy that overtakes what it must not.
Barriers::Barriers(Block& block) : block_(block) {
  constexpr u32 kChances[] = {0, 0, 8, 128};
  drift_chance_ = kChances[block.random.below(4)];
}

Barriers::State& Barriers::at(u32 barrier, const Call& call) {
  auto& state = *reinterpret_cast<State*>(
      block_.shared.access(barrier, sizeof(State), Access::kBarrier, call));
  if (state.mark != State::kMark)
    fault(call, fmt::format("no initialised barrier at shared memory + {}",
                            barrier - SharedMemory::kBase));
  return state;
}

void Barriers::init(u32 barrier, u32 count, const Call& call) {
  auto& state =
      *reinterpret_cast<State*>(block_.shared.access(barrier, sizeof(State), Access::kWrite, call));
  state = {.expected = count & State::kMaxCount,
           .missing = count & State::kMaxCount,
           .phase = 0,
           .unused = 0,
           .mark = State::kMark};
  const Clock nothing(2 * block_.threads.size(), 0);
  releases_[barrier] = {nothing, nothing};
}

// Counts an arrival; whose does not matter, nor who is running.
void Barriers::count(u32 barrier) {
  auto& state = *reinterpret_cast<State*>(block_.shared.at(barrier));
  if (--state.missing != 0) return;
  state.phase ^= 1;
  state.missing = state.expected;
  Releases& releases = releases_[barrier];
  releases.last = releases.current;
  std::fill(releases.current.begin(), releases.current.end(), 0);
  block_.schedule.phase_completed(barrier);
}

void Barriers::arrive(u32 barrier, const Call& call) {
  at(barrier, call);
  Thread& thread = Thread::current();
  join(releases_[barrier].current, thread.clock);
  ++thread.clock[thread.index];
  count(barrier);
}

void Barriers::arrive_after_copies(u32 barrier, const Call& call) {
  at(barrier, call);
  Thread& thread = Thread::current();
  const Copy arrival{.barrier = barrier, .time = thread.copy_time++};
  if (thread.copies.empty())
    arrive_with_copies(thread, arrival);
  else
    thread.copies.push_back(arrival);
}

// Orders the thread's copies, not what else it did before.
void Barriers::arrive_with_copies(const Thread& thread, const Copy& arrival) {
  u32& seen = releases_[arrival.barrier].current[block_.threads.size() + thread.index];
  seen = std::max(seen, arrival.time);
  count(arrival.barrier);
}

// `phase` is the parity of the current phase; the other one is that of the phase before.
bool Barriers::completed(u32 barrier, u32 parity, const Call& call) {
  if (at(barrier, call).phase == parity) return false;
  join(Thread::current().clock, releases_[barrier].last);
  return true;
}

void Barriers::add_copy(u32 to, const kernels::arch::Unit& data) {
  Thread& thread = Thread::current();
  if (thread.copies.empty()) copying_.push_back(&thread);
  thread.copies.push_back({.to = to, .data = data});
}

void Barriers::wait_for_copies() {
  Thread& thread = Thread::current();
  while (!thread.copies.empty())
    land(thread, block_.random.below(static_cast<u32>(thread.copies.size())));
  thread.clock[block_.threads.size() + thread.index] = thread.copy_time++;
}

// Lands the thread's i-th copy, or the one before that arrival, and makes the arrivals that then
// have no copy before them.
void Barriers::land(Thread& thread, std::size_t i) {
  std::vector<Copy>& copies = thread.copies;
  while (copies[i].barrier != 0) --i;  // the first is always a copy
  std::memcpy(block_.shared.at(copies[i].to), &copies[i].data, sizeof(copies[i].data));
  copies.erase(copies.begin() + static_cast<std::ptrdiff_t>(i));
  while (!copies.empty() && copies.front().barrier != 0) {
    const Copy arrival = copies.front();
    copies.erase(copies.begin());
    arrive_with_copies(thread, arrival);
  }
  if (copies.empty()) std::erase(copying_, &thread);
}

void Barriers::land_any_copy() {
  Random& random = block_.random;
  Thread& thread = *copying_[random.below(static_cast<u32>(copying_.size()))];
  land(thread, random.below(static_cast<u32>(thread.copies.size())));
}

void Barriers::drift() {
  if (any_copy_on_its_way() && block_.random.below(256) < drift_chance_) land_any_copy();
}

}  // namespace parapet::emulate
