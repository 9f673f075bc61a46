#pragma once

#include <array>
#include <vector>

#include "emulate/call.h"

namespace parapet::emulate {

// A warp's lanes at an instruction that they do together.
struct WarpMeeting {
  Call call{};
  std::vector<Thread*> waiting{};
  std::array<void*, kWarp> operands{};
};

enum class Place {
  kAny,
  kSame,  // PTX calls the instruction .aligned: all lanes have to be at the same place in the code
};

// Brings the running thread and its operands to its warp's meeting. True for the last lane to come,
// which does the work; for the others false, once that is done.
bool come_together(const Call& call, void* operands, Place place);
// The operands of all lanes.
const std::array<void*, kWarp>& operands_of_warp();
// The work is done.
void part();

// Waits for the warp's other lanes; the last one calls work(Operands* of each lane). Orders no
// memory.
template <class Operands, class Work>
void with_warp(const Call& call, Operands& mine, const Work& work, Place place = Place::kAny) {
  if (!come_together(call, &mine, place)) return;
  std::array<Operands*, kWarp> lanes;
  for (u32 i = 0; i < kWarp; ++i) lanes[i] = static_cast<Operands*>(operands_of_warp()[i]);
  work(lanes);
  part();
}

// What any lane, or any thread of the block, did happens before what they do from now on.
void sync_warp(const Call& call);
void sync_block(const Call& call);

// The running thread ends: it counts as one that has come to the block's meeting.
void leave_block();

}  // namespace parapet::emulate
