#include "kernels/arch/barrier.h"

#include "emulate/block.h"

namespace parapet::kernels::arch {
namespace {

using emulate::Block;
using emulate::Thread;

Block& block() {
  return Thread::current().block;
}

}  // namespace

void barrier_init(u32 barrier, u32 count, Site site) {
  block().barriers.init(barrier, count, {__func__, site});
}
void barrier_arrive(u32 barrier, bool arrives, Site site) {
  if (arrives) block().barriers.arrive(barrier, {__func__, site});
}
void barrier_arrive_after_copies(u32 barrier, Site site) {
  block().barriers.arrive_after_copies(barrier, {__func__, site});
}

bool barrier_test(u32 barrier, u32 parity, Site site) {
  const emulate::Call call{__func__, site};
  if (block().barriers.completed(barrier, parity, call)) return true;
  if (block().random.below(2) != 0) return false;
  block().schedule.pause_polling({call, barrier, parity});
  return block().barriers.completed(barrier, parity, call);
}

void barrier_wait(u32 barrier, u32 parity, Site site) {
  const emulate::Call call{__func__, site};
  while (!block().barriers.completed(barrier, parity, call))
    block().schedule.pause({call, barrier, parity});
}

}  // namespace parapet::kernels::arch
