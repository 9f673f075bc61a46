#pragma once

#include "kernels/arch/platform.h"

// mbarriers: 8 bytes of shared memory each, whose phase completes when `count` arrivals are in.
// Names in comments are those of the PTX ISA.

namespace parapet::kernels::arch {

// mbarrier.init
INSTRUCTION void barrier_init(u32 barrier, u32 count SITE)
    PTX(asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "r"(count)
                     : "memory"););

// mbarrier.arrive: releases what this thread wrote before. Only where `arrives`.
INSTRUCTION void barrier_arrive(u32 barrier, bool arrives SITE)
    PTX(asm volatile("{ .reg .b64 state; .reg .pred p; setp.ne.u32 p, %1, 0;"
                     "  @p mbarrier.arrive.shared.b64 state, [%0]; }" ::"r"(barrier),
                     "r"(static_cast<u32>(arrives))
                     : "memory"););

// cp.async.mbarrier.arrive.noinc: arrives once this thread's copies so far have landed.
INSTRUCTION void barrier_arrive_after_copies(u32 barrier SITE)
    PTX(asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(barrier)
                     : "memory"););

// mbarrier.test_wait.parity: has the phase of this parity completed?
INSTRUCTION bool barrier_test(u32 barrier, u32 parity SITE)
    PTX(u32 done; asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2;"
                               "  selp.b32 %0, 1, 0, p; }"
                               : "=r"(done)
                               : "r"(barrier), "r"(parity)
                               : "memory");
        return done;);

// The same, until it has.
INSTRUCTION void barrier_wait(u32 barrier, u32 parity SITE)
    PTX(asm volatile("{ .reg .pred p;"
                     "again%=: mbarrier.test_wait.parity.shared.b64 p, [%0], %1;"
                     "  @!p bra again%=; }" ::"r"(barrier),
                     "r"(parity)
                     : "memory"););

}  // namespace parapet::kernels::arch
