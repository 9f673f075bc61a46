#pragma once

#include <map>
#include <vector>

#include "emulate/race_check.h"

namespace parapet::emulate {

// An asynchronous copy on its way or, with a barrier, an arrival that waits for the copies before
// it.
struct Copy {
  u32 to = 0;
  u32 barrier = 0;
  u32 time = 0;  // of the thread's copies, at an arrival
  kernels::arch::Unit data{};
};

// mbarriers, and the copies that arrive at them. A copy lands at its thread's wait, or when nobody
// can go on without it, or at any other time that the seed chooses.
class Barriers {
 public:
  explicit Barriers(Block& block);

  // Of the running thread.
  void init(u32 barrier, u32 count, const Call& call);
  void arrive(u32 barrier, const Call& call);
  void arrive_after_copies(u32 barrier, const Call& call);
  // Whether the phase of this parity has completed; if so, what was done before it is ordered.
  bool completed(u32 barrier, u32 parity, const Call& call);
  void add_copy(u32 to, const kernels::arch::Unit& data);
  void wait_for_copies();

  bool any_copy_on_its_way() const { return !copying_.empty(); }
  void land_any_copy();
  // Lands one now and then.
  void drift();

 private:
  struct State;
  // What waiting for a barrier's current phase, or for the one before, orders.
  struct Releases {
    Clock current;
    Clock last;
  };

  State& at(u32 barrier, const Call& call);
  void count(u32 barrier);
  void arrive_with_copies(const Thread& thread, const Copy& arrival);
  void land(Thread& thread, std::size_t i);

  Block& block_;
  u32 drift_chance_;  // in 256
  std::vector<Thread*> copying_;
  std::map<u32, Releases> releases_;
};

}  // namespace parapet::emulate
