#pragma once

#include <vector>

#include "emulate/call.h"

namespace parapet::emulate {

// How much of every actor's doings happens before a point. The actors are a block's threads and, as
// their order is separate, each thread's asynchronous copies: actor `threads + thread`.
using Clock = std::vector<u32>;

inline void join(Clock& to, const Clock& from) {
  for (std::size_t i = 0; i < to.size(); ++i) to[i] = to[i] < from[i] ? from[i] : to[i];
}

enum class Access {
  kRead,
  kWrite,
  kRewrite,  // a write of what is there already
  kCopy,     // a write by an asynchronous copy
  kAtomic,   // needs no order among its kind
  kBarrier,  // an operation on an mbarrier, which needs order only after its initialisation
};

// Are the accesses to shared memory ordered by barriers? That depends on which barriers were used,
// not on the schedule: under any seed a wait that is missing on a path taken is found, also where
// the values happen to be right.
class RaceCheck {
 public:
  RaceCheck(u32 shared_bytes, u32 threads) : threads_(threads), words_(shared_bytes / 4) {}

  // The thread's access to whole words from `offset` on. Stops at one that is not ordered after an
  // earlier one that it must not overtake.
  void access(const Thread& thread, u32 offset, u32 bytes, Access kind, const Call& call);

 private:
  struct Event {
    u32 actor = 0;
    u32 time = 0;
    Call call{};
  };
  struct Word {
    Event write{};  // the last one
    std::vector<Event> reads{};
    std::vector<Event> atomics{};  // both since then, and other lanes' part of that write
  };

  bool ordered(const Thread& thread, const Event& event) const;
  bool is_same_store(const Event& a, const Event& b) const;
  static void note(std::vector<Event>& events, const Event& event);

  u32 threads_;
  std::vector<Word> words_;
};

}  // namespace parapet::emulate
