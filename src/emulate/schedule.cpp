#include "emulate/schedule.h"

#include <fmt/format.h>

#include <map>

#include "emulate/block.h"

namespace parapet::emulate {
namespace {

constexpr u32 kPriorities = 1 << 30;
constexpr u32 kPatience = 100;  // fruitless polls of every thread that count as a deadlock

// The order of the others does not matter.
Thread& take(std::vector<Thread*>& from, Random& random) {
  const std::size_t i = random.below(static_cast<u32>(from.size()));
  Thread& thread = *from[i];
  from[i] = from.back();
  from.pop_back();
  return thread;
}

// "0-5 7"
std::string ranges(const std::vector<u32>& sorted) {
  std::string text;
  for (std::size_t i = 0, end = 0; i < sorted.size(); i = end) {
    for (end = i + 1; end < sorted.size() && sorted[end] == sorted[end - 1] + 1;) ++end;
    text += fmt::format("{}{}", text.empty() ? "" : " ", sorted[i]);
    if (end > i + 1) text += fmt::format("-{}", sorted[end - 1]);
  }
  return text;
}

}  // namespace

Schedule::Schedule(Block& block)
    : block_(block), ready_((block.threads.size() + kWarp - 1) / kWarp) {
  for (std::size_t i = 0; i < ready_.size(); ++i)
    priorities_.push_back(block.random.below(kPriorities));
  for (Thread& thread : block.threads) make_ready(thread);
}

void Schedule::make_ready(Thread& thread) {
  ready_[thread.warp()].push_back(&thread);
}

void Schedule::happened() {
  fruitless_polls_ = 0;
  for (Thread* thread : polling_) {
    thread->wait.barrier = 0;
    make_ready(*thread);
  }
  polling_.clear();
}

void Schedule::phase_completed(u32 barrier) {
  happened();
  for (Thread& thread : block_.threads) {
    if (thread.ended || thread.wait.barrier != barrier) continue;
    thread.wait.barrier = 0;
    make_ready(thread);
  }
}

Thread* Schedule::pick_ready() {
  Random& random = block_.random;
  const u32 chance = random.below(4096);
  if (chance < 4) {
    const u32 warp = random.below(static_cast<u32>(priorities_.size()));
    priorities_[warp] = random.below(kPriorities);
  }
  const u32 flip = chance % 32 == 31 ? random.below(kPriorities) : 0;
  const std::vector<Thread*>* best = nullptr;
  u32 highest = 0;
  for (std::size_t warp = 0; warp < ready_.size(); ++warp) {
    const u32 priority = priorities_[warp] ^ flip;
    if (ready_[warp].empty() || (best != nullptr && priority <= highest)) continue;
    best = &ready_[warp];
    highest = priority;
  }
  if (best == nullptr) return nullptr;
  return &take(ready_[static_cast<std::size_t>(best - ready_.data())], random);
}

Thread& Schedule::next() {
  while (true) {
    block_.barriers.drift();
    if (Thread* const thread = pick_ready()) return *thread;
    if (block_.barriers.any_copy_on_its_way()) {
      block_.barriers.land_any_copy();
    } else if (!polling_.empty() &&
               fruitless_polls_ < kPatience * static_cast<u32>(block_.threads.size())) {
      ++fruitless_polls_;
      Thread& thread = take(polling_, block_.random);
      thread.wait.barrier = 0;
      return thread;
    } else {
      fault(describe_deadlock());
    }
  }
}

void Schedule::pause(const Wait& wait) {
  Thread& me = Thread::current();
  me.wait = wait;
  Thread& other = next();
  if (&other == &me) return;
  me.switch_to(other);
}

void Schedule::pause_polling(const Wait& wait) {
  polling_.push_back(&Thread::current());
  pause(wait);
}

std::string Schedule::describe_deadlock() const {
  std::map<std::string, std::vector<u32>> places;
  for (const Thread& thread : block_.threads) {
    std::string place = "have ended";
    if (!thread.ended) {
      place = fmt::format("wait in {}", thread.wait.call.text());
      if (thread.wait.barrier != 0)
        place += fmt::format(" for the barrier at shared memory + {}, parity {}",
                             thread.wait.barrier - SharedMemory::kBase, thread.wait.parity);
    }
    places[place].push_back(thread.index);
  }
  std::string text = "deadlock";
  for (const auto& [place, threads] : places)
    text += fmt::format("\n  threads {} {}", ranges(threads), place);
  return text;
}

}  // namespace parapet::emulate
