#include "emulate/meeting.h"

#include <fmt/format.h>

#include <string_view>

#include "emulate/block.h"

namespace parapet::emulate {
namespace {

WarpMeeting& warp_meeting() {
  const Thread& me = Thread::current();
  return me.block.warp_meetings[me.warp()];
}

template <class Threads>
void order(const Threads& threads) {
  Clock all = threads[0]->clock;
  for (const Thread* thread : threads) join(all, thread->clock);
  for (Thread* thread : threads) {
    thread->clock = all;
    ++thread->clock[thread->index];
  }
}

void end_block_meeting(Block& block) {
  block.schedule.happened();
  order(block.present);
  for (Thread* thread : block.present)
    if (thread != &Thread::current()) block.schedule.make_ready(*thread);
  block.present.clear();
}

}  // namespace

bool come_together(const Call& call, void* operands, Place place) {
  Thread& me = Thread::current();
  WarpMeeting& meeting = warp_meeting();
  const Call& first = meeting.call;
  if (meeting.waiting.empty())
    meeting.call = call;
  else if (std::string_view(call.instruction) != first.instruction ||
           (place == Place::kSame && call.site.line != first.site.line))
    fault(call, fmt::format("its warp diverged: other lanes are in {}", first.text()));
  meeting.operands[me.lane()] = operands;
  if (meeting.waiting.size() == kWarp - 1) return true;
  meeting.waiting.push_back(&me);
  me.block.schedule.pause({.call = call});
  return false;
}

const std::array<void*, kWarp>& operands_of_warp() {
  return warp_meeting().operands;
}

void part() {
  WarpMeeting& meeting = warp_meeting();
  for (Thread* thread : meeting.waiting) Thread::current().block.schedule.make_ready(*thread);
  meeting.waiting.clear();
}

void sync_warp(const Call& call) {
  Thread& me = Thread::current();
  with_warp(call, me, [](const std::array<Thread*, kWarp>& lanes) { order(lanes); });
}

void sync_block(const Call& call) {
  Thread& me = Thread::current();
  Block& block = me.block;
  block.present.push_back(&me);
  if (block.present.size() == block.alive)
    end_block_meeting(block);
  else
    block.schedule.pause({.call = call});
}

void leave_block() {
  Thread& me = Thread::current();
  Block& block = me.block;
  if (!me.copies.empty()) fault(fmt::format("thread {} ended with copies on their way", me.index));
  me.ended = true;
  --block.alive;
  block.schedule.happened();
  if (block.alive > 0 && block.present.size() == block.alive) end_block_meeting(block);
}

}  // namespace parapet::emulate
