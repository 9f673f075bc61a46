#pragma once

#include "kernels/arch/platform.h"

// Where am I, and what do my warp and my block do together. Names in comments are those of the PTX
// ISA.

namespace parapet::kernels::arch {

// %tid.x
INSTRUCTION u32 thread_index() PTX(return threadIdx.x;);

// %tid.x read anew: for values used too rarely to be worth a register.
INSTRUCTION u32 thread_index_again() PTX(u32 index; asm volatile("mov.u32 %0, %%tid.x;"
                                                                 : "=r"(index));
                                         return index;);

// mov.b32: the same number, but the compiler does not know that: what is computed from it is not
// moved out of a loop, where it would take a register.
INSTRUCTION int opaque(int x) PTX(int y; asm volatile("mov.b32 %0, %1;"
                                                      : "=r"(y)
                                                      : "r"(x));
                                  return y;);

// The same of a pointer.
INSTRUCTION const void* opaque(const void* x) PTX(const void* y; asm volatile("mov.b64 %0, %1;"
                                                                              : "=l"(y)
                                                                              : "l"(x));
                                                  return y;);

// %ctaid.x
INSTRUCTION u32 block_index() PTX(return blockIdx.x;);

// %nctaid.x
INSTRUCTION u32 block_count() PTX(return gridDim.x;);

// barrier.sync: all threads of the block meet; orders memory.
INSTRUCTION void sync_block(ONLY_SITE) PTX(asm volatile("barrier.sync.aligned 0;" ::: "memory"););

// bar.warp.sync: all lanes meet; orders memory.
INSTRUCTION void sync_warp(ONLY_SITE) PTX(asm volatile("bar.warp.sync 0xffffffff;" ::: "memory"););

// The rest of this file is collective: all 32 lanes call it at the same place. It orders no memory.

// vote.sync.any
INSTRUCTION bool any_in_warp(bool x SITE) PTX(return __any_sync(~0u, x););

// redux.sync.max.s32: of a number that all lanes agree on, itself; ptxas then knows that they do.
INSTRUCTION int uniform(int x SITE) PTX(int y; asm volatile("redux.sync.max.s32 %0, %1, 0xffffffff;"
                                                            : "=r"(y)
                                                            : "r"(x));
                                        return y;);

// shfl.sync.bfly
INSTRUCTION float shuffle_xor(float x, u32 mask SITE) PTX(return __shfl_xor_sync(~0u, x, mask););

// shfl.sync.bfly
INSTRUCTION u32 shuffle_xor(u32 x, u32 mask SITE) PTX(return __shfl_xor_sync(~0u, x, mask););

// shfl.sync.up: the value of lane - distance, or the lane's own where there is none.
INSTRUCTION int shuffle_up(int x, u32 distance SITE) PTX(return __shfl_up_sync(~0u, x, distance););

// shfl.sync.idx
INSTRUCTION u32 shuffle(u32 x, u32 lane SITE) PTX(return __shfl_sync(~0u, x, lane););

}  // namespace parapet::kernels::arch
