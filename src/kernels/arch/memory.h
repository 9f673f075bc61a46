#pragma once

#include "kernels/arch/platform.h"

// Loads, stores and asynchronous copies. Shared memory is always addressed by 32-bit numbers. Names
// in comments are those of the PTX ISA; everything that orders memory has a memory clobber.

namespace parapet::kernels::arch {

// cvta.to.shared: the block's dynamic shared memory, 1024-byte aligned.
INSTRUCTION u32 shared_memory()
    PTX(extern __shared__ __align__(1024) u8 dynamic_shared[];
        return static_cast<u32>(__cvta_generic_to_shared(dynamic_shared)););

// ld.shared.u32
INSTRUCTION u32 load_shared(u32 from SITE) PTX(u32 x; asm volatile("ld.shared.u32 %0, [%1];"
                                                                   : "=r"(x)
                                                                   : "r"(from)
                                                                   : "memory");
                                               return x;);

// ld.shared.v4.u32
INSTRUCTION Unit load_shared_unit(u32 from SITE)
    PTX(Unit x; asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                             : "=r"(x.word[0]), "=r"(x.word[1]), "=r"(x.word[2]), "=r"(x.word[3])
                             : "r"(from)
                             : "memory");
        return x;);

// st.shared.u32
INSTRUCTION void store_shared(u32 to, u32 x SITE)
    PTX(asm volatile("st.shared.u32 [%0], %1;" ::"r"(to), "r"(x)
                     : "memory"););

// st.shared.v4.u32
INSTRUCTION void store_shared_unit(u32 to, Unit x SITE)
    PTX(asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(x.word[0]),
                     "r"(x.word[1]), "r"(x.word[2]), "r"(x.word[3])
                     : "memory"););

// atom.shared.add.u32: returns the value before.
INSTRUCTION u32 add_shared(u32 to, u32 x SITE)
    PTX(u32 before; asm volatile("atom.shared.add.u32 %0, [%1], %2;"
                                 : "=r"(before)
                                 : "r"(to), "r"(x)
                                 : "memory");
        return before;);

// atom.shared.min.u64
INSTRUCTION void min_shared(u32 to, u64 x SITE)
    PTX(asm volatile("{ .reg .b64 before; atom.shared.min.u64 before, [%0], %1; }" ::"r"(to), "l"(x)
                     : "memory"););

// ld.shared.u64
INSTRUCTION u64 load_shared_u64(u32 from SITE) PTX(u64 x; asm volatile("ld.shared.u64 %0, [%1];"
                                                                       : "=l"(x)
                                                                       : "r"(from)
                                                                       : "memory");
                                                   return x;);

// st.shared.u64
INSTRUCTION void store_shared_u64(u32 to, u64 x SITE)
    PTX(asm volatile("st.shared.u64 [%0], %1;" ::"r"(to), "l"(x)
                     : "memory"););

// ld.global.u16
INSTRUCTION u16 load_global_u16(const void* from SITE)
    PTX(u16 x; asm volatile("ld.global.u16 %0, [%1];"
                            : "=h"(x)
                            : "l"(from)
                            : "memory");
        return x;);

// ld.global.u32
INSTRUCTION u32 load_global_u32(const void* from SITE)
    PTX(u32 x; asm volatile("ld.global.u32 %0, [%1];"
                            : "=r"(x)
                            : "l"(from)
                            : "memory");
        return x;);

// ld.global.f32
INSTRUCTION float load_global_float(const void* from SITE)
    PTX(float x; asm volatile("ld.global.f32 %0, [%1];"
                              : "=f"(x)
                              : "l"(from)
                              : "memory");
        return x;);

// ld.global.v4.u32: 16-byte aligned
INSTRUCTION Unit load_global_unit(const void* from SITE)
    PTX(Unit x; asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                             : "=r"(x.word[0]), "=r"(x.word[1]), "=r"(x.word[2]), "=r"(x.word[3])
                             : "l"(from)
                             : "memory");
        return x;);

// ld.global.v2.u32: 8-byte aligned; when !valid, reads nothing and returns zeros. In C++, so that
// the compiler can put constant offsets into the instruction.
INSTRUCTION HalfUnit load_global_half_unit(const void* from, bool valid SITE)
    PTX(__builtin_assume(__isGlobal(from)); HalfUnit x{};
        if (valid) x = *static_cast<const HalfUnit*>(from); return x;);

// st.global.u16
INSTRUCTION void store_global_u16(void* to, u16 x SITE)
    PTX(asm volatile("st.global.u16 [%0], %1;" ::"l"(to), "h"(x)
                     : "memory"););

// st.global.u32
INSTRUCTION void store_global_u32(void* to, u32 x SITE)
    PTX(asm volatile("st.global.u32 [%0], %1;" ::"l"(to), "r"(x)
                     : "memory"););

// st.global.f32
INSTRUCTION void store_global_float(void* to, float x SITE)
    PTX(asm volatile("st.global.f32 [%0], %1;" ::"l"(to), "f"(x)
                     : "memory"););

// st.global.v2.u32: 8-byte aligned. In C++ for the same reason.
INSTRUCTION void store_global_half_unit(void* to, HalfUnit x SITE)
    PTX(__builtin_assume(__isGlobal(to)); *static_cast<HalfUnit*>(to) = x;);

// prefetch.global.L2
INSTRUCTION void prefetch(const void* from SITE)
    PTX(asm volatile("prefetch.global.L2 [%0];" ::"l"(from)););

// st.global.v4.u32: 16-byte aligned
INSTRUCTION void store_global_unit(void* to, Unit x SITE)
    PTX(asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(x.word[0]),
                     "r"(x.word[1]), "r"(x.word[2]), "r"(x.word[3])
                     : "memory"););

// cp.async.cg: 16 bytes to shared memory, past L1; when !valid, reads nothing and writes zeros.
// Lands some time before a wait or a barrier that counts it.
INSTRUCTION void copy_unit_async(u32 to, const void* from, bool valid SITE)
    PTX(asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
                     "r"(valid ? 16 : 0)
                     : "memory"););

// cp.async.wait_all: this thread's copies have landed.
INSTRUCTION void wait_for_copies(ONLY_SITE) PTX(asm volatile("cp.async.wait_all;" ::: "memory"););

}  // namespace parapet::kernels::arch
