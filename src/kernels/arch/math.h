#pragma once

#include "kernels/arch/platform.h"

// Arithmetic of one thread. Names in comments are those of the PTX ISA. Volatile keeps the order
// that the kernel gives, in which these are dealt out between matrix multiplications.

namespace parapet::kernels::arch {

// ex2.approx.ftz.f32
INSTRUCTION float exp2_approx(float x) PTX(float y; asm volatile("ex2.approx.ftz.f32 %0, %1;"
                                                                 : "=f"(y)
                                                                 : "f"(x));
                                           return y;);

// lg2.approx.ftz.f32
INSTRUCTION float log2_approx(float x) PTX(float y; asm volatile("lg2.approx.ftz.f32 %0, %1;"
                                                                 : "=f"(y)
                                                                 : "f"(x));
                                           return y;);

// rcp.approx.ftz.f32
INSTRUCTION float reciprocal_approx(float x) PTX(float y; asm volatile("rcp.approx.ftz.f32 %0, %1;"
                                                                       : "=f"(y)
                                                                       : "f"(x));
                                                 return y;);

// fma.rn.f32
INSTRUCTION float multiply_add(float a, float b, float c) PTX(return __fmaf_rn(a, b, c););

// max.f32: the other operand where one is NaN.
INSTRUCTION float max(float a, float b) PTX(return fmaxf(a, b););

// min.f32: likewise.
INSTRUCTION float min(float a, float b) PTX(return fminf(a, b););

// cvt.rn.bf16x2.f32
INSTRUCTION u32 pack_bfloat16(float low, float high)
    PTX(u32 x; asm volatile("cvt.rn.bf16x2.f32 %0, %1, %2;"
                            : "=r"(x)
                            : "f"(high), "f"(low));
        return x;);

// cvt.rn.f16x2.f32
INSTRUCTION u32 pack_float16(float low, float high)
    PTX(u32 x; asm volatile("cvt.rn.f16x2.f32 %0, %1, %2;"
                            : "=r"(x)
                            : "f"(high), "f"(low));
        return x;);

// cvt.f32.f16
INSTRUCTION float from_float16(u16 bits) PTX(float x; asm volatile("cvt.f32.f16 %0, %1;"
                                                                   : "=f"(x)
                                                                   : "h"(bits));
                                             return x;);

// A bfloat16 is the upper half of a float.
INSTRUCTION float from_bfloat16(u16 bits)
    PTX(return __uint_as_float(static_cast<u32>(bits) << 16););

}  // namespace parapet::kernels::arch
