#pragma once

#include <functional>
#include <string>
#include <vector>

#include "emulate/barrier.h"
#include "emulate/fibre.h"
#include "emulate/launch.h"
#include "emulate/meeting.h"
#include "emulate/race_check.h"
#include "emulate/random.h"
#include "emulate/schedule.h"
#include "emulate/shared_memory.h"

namespace parapet::emulate {

// A thread of a block.
struct Thread {
  Thread(Block& in_block, u32 number, u32 threads, Fibre& on_fibre)
      : block(in_block), index(number), fibre(on_fibre), clock(std::size_t{2} * threads, 0) {
    clock[index] = 1;
  }

  // The one whose fibre is running.
  static Thread& current();
  // Goes on with another thread; comes back when somebody goes on with this one.
  void switch_to(Thread& other);

  u32 lane() const { return index % kWarp; }
  u32 warp() const { return index / kWarp; }

  Block& block;
  u32 index;
  Fibre& fibre;
  bool ended = false;
  Wait wait{};  // what it does while it is not running
  std::vector<Copy> copies{};
  Clock clock;
  u32 copy_time = 1;  // of the copies it issues: an actor of their own, see race_check.h
};

// A block while it runs. An instruction finds it from Thread::current().
struct Block {
  Block(const Launch& launched, const std::function<void()>& code, u32 number,
        std::vector<Fibre>& fibres, Random& seeded);

  // Until all threads have ended, or throws the first Fault.
  void run();

  const Launch& launch;
  const std::function<void()>& kernel;
  u32 index;
  Random& random;
  std::vector<Window> windows;
  std::vector<Thread> threads;
  u32 alive;
  RaceCheck races;
  SharedMemory shared;
  Barriers barriers;
  Schedule schedule;
  std::vector<WarpMeeting> warp_meetings;
  std::vector<Thread*> present{};  // at the block's meeting
  Fibre outside{};                 // where run() waits
  std::string fault_text{};        // of the fault that ended it
};

}  // namespace parapet::emulate
