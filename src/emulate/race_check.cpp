#include "emulate/race_check.h"

#include <fmt/format.h>

#include <algorithm>

#include "emulate/block.h"

namespace parapet::emulate {

bool RaceCheck::ordered(const Thread& thread, const Event& event) const {
  return event.time <= thread.clock[event.actor];
}

// Whether two lanes of a warp do it with one instruction.
bool RaceCheck::is_same_store(const Event& a, const Event& b) const {
  return a.actor < threads_ && a.actor / kWarp == b.actor / kWarp &&
         a.call.site.line == b.call.site.line;
}

void RaceCheck::access(const Thread& thread, u32 offset, u32 bytes, Access kind, const Call& call) {
  const auto require_order = [&](const Event& event) {
    if (!ordered(thread, event)) {
      fault(call, fmt::format("race at shared memory + {}: not ordered after thread {}'s {}",
                              offset, event.actor % threads_, event.call.text()));
    }
  };
  const auto require_order_after_all = [&](const std::vector<Event>& events) {
    for (const Event& event : events) require_order(event);
  };
  const Event mine = kind == Access::kCopy ? Event{threads_ + thread.index, thread.copy_time, call}
                                           : Event{thread.index, thread.clock[thread.index], call};
  for (u32 i = offset / 4; i < (offset + bytes) / 4; ++i) {
    Word& word = words_[i];
    if (kind == Access::kRewrite && !ordered(thread, word.write) &&
        is_same_store(mine, word.write)) {
      require_order_after_all(word.reads);
      note(word.atomics, word.write);
      word.write = mine;
      continue;
    }
    require_order(word.write);
    switch (kind) {
      case Access::kBarrier:
        break;
      case Access::kRead:
        require_order_after_all(word.atomics);
        note(word.reads, mine);
        break;
      case Access::kAtomic:
        require_order_after_all(word.reads);
        note(word.atomics, mine);
        break;
      case Access::kWrite:
      case Access::kRewrite:
      case Access::kCopy:
        require_order_after_all(word.reads);
        require_order_after_all(word.atomics);
        word.reads.clear();
        word.atomics.clear();
        word.write = mine;
        break;
    }
  }
}

// Keeps an actor's latest event only: it is ordered after the earlier ones.
void RaceCheck::note(std::vector<Event>& events, const Event& event) {
  const auto same = std::find_if(events.begin(), events.end(),
                                 [&](const Event& other) { return other.actor == event.actor; });
  if (same == events.end())
    events.push_back(event);
  else
    *same = event;
}

}  // namespace parapet::emulate
