#include "emulate/block.h"

#include <fmt/format.h>

#include <string_view>

namespace parapet::emulate {
namespace {

thread_local Thread* running = nullptr;

std::vector<Thread> make_threads(Block& block, std::vector<Fibre>& fibres) {
  std::vector<Thread> threads;
  const auto count = static_cast<u32>(fibres.size());
  for (u32 i = 0; i < count; ++i) threads.emplace_back(block, i, count, fibres[i]);
  return threads;
}

// The bottom of every fibre. A fault ends the block: its other fibres stay where they are.
void run_thread() {
  Fibre::entered();
  Thread& me = Thread::current();
  Block& block = me.block;
  Fibre* next = &block.outside;
  try {
    block.kernel();
    leave_block();
    if (block.alive > 0) {
      running = &block.schedule.next();
      next = &running->fibre;
    }
  } catch (const Fault& fault) {
    block.fault_text = fault.what();
  }
  me.fibre.end_and_switch_to(*next);
}

}  // namespace

std::string Call::text() const {
  const std::string_view path = site.file;
  return fmt::format("{} at {}:{}", instruction, path.substr(path.rfind('/') + 1), site.line);
}

void fault(const std::string& text) {
  const Block& block = Thread::current().block;
  throw Fault(fmt::format("block {}, seed {}: {}", block.index, block.launch.seed, text));
}

void fault(const Call& call, const std::string& text) {
  fault(fmt::format("{}, thread {}: {}", call.text(), Thread::current().index, text));
}

Thread& Thread::current() {
  return *running;
}

void Thread::switch_to(Thread& other) {
  running = &other;
  fibre.switch_to(other.fibre);
}

Block::Block(const Launch& launched, const std::function<void()>& code, u32 number,
             std::vector<Fibre>& fibres, Random& seeded)
    : launch(launched),
      kernel(code),
      index(number),
      random(seeded),
      threads(make_threads(*this, fibres)),
      alive(static_cast<u32>(threads.size())),
      races(static_cast<u32>(launched.shared_bytes), alive),
      shared(*this, static_cast<u32>(launched.shared_bytes)),
      barriers(*this),
      schedule(*this),
      warp_meetings((threads.size() + kWarp - 1) / kWarp) {
  if (launch.windows) windows = launch.windows(index);
  for (const Thread& thread : threads) thread.fibre.prepare(run_thread);
}

void Block::run() {
  running = &schedule.next();
  outside.switch_to(running->fibre);
  if (!fault_text.empty()) throw Fault(fault_text);
}

}  // namespace parapet::emulate
