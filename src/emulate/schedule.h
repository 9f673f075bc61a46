#pragma once

#include <string>
#include <vector>

#include "emulate/call.h"

namespace parapet::emulate {

// What a thread waits for: a phase of a barrier or, with barrier 0, other threads.
struct Wait {
  Call call{};
  u32 barrier = 0;
  u32 parity = 0;
};

// Decides which thread of a block runs. Mostly the warp of highest priority that can, so that warps
// drift as far apart as their barriers let them; sometimes another one; and now and then priorities
// change. Lanes of a warp go on in any order.
class Schedule {
 public:
  explicit Schedule(Block& block);

  // The running thread lets others run until somebody makes it ready.
  void pause(const Wait& wait);
  // The same after asking a barrier in vain: it may go on at any time, but need not before
  // something happens.
  void pause_polling(const Wait& wait);

  void make_ready(Thread& thread);
  // Something that a polling thread may be waiting for.
  void happened();
  void phase_completed(u32 barrier);

  // The thread to run next. Stops at a deadlock.
  Thread& next();

 private:
  Thread* pick_ready();
  std::string describe_deadlock() const;

  Block& block_;
  std::vector<std::vector<Thread*>> ready_;  // of each warp
  std::vector<u32> priorities_;              // of each warp
  std::vector<Thread*> polling_;
  u32 fruitless_polls_ = 0;  // since something happened
};

}  // namespace parapet::emulate
