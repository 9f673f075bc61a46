#pragma once

#include "kernels/arch/platform.h"

// The warp's matrix instructions: all 32 lanes call them at the same place. Names in comments are
// those of the PTX ISA, which draws which element lies in which lane's register.

namespace parapet::kernels::arch {

// ldmatrix.m8n8.x4: four 8x8 matrices of 16-bit elements; lane l gives the address of row l % 8 of
// matrix l / 8. Register i of lane l gets elements 2 (l % 4) and the next of row l / 4 of matrix i.
INSTRUCTION void load_matrices(u32 (&r)[4], u32 row SITE)
    PTX(asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                     : "r"(row)
                     : "memory"););

// ldmatrix.m8n8.x4.trans: the same, each matrix transposed.
INSTRUCTION void load_matrices_transposed(u32 (&r)[4], u32 row SITE)
    PTX(asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                     : "r"(row)
                     : "memory"););

// mma.m16n8k16: c += a b, a 16x16 row-major, b 16x8 column-major, both bfloat16, c float32.
INSTRUCTION void multiply_bfloat16(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1 SITE)
    PTX(asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1)););

// mma.m16n8k16: c = a b.
INSTRUCTION void multiply_bfloat16_from_zero(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1 SITE)
    PTX(asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};"
                     : "=f"(c[0]), "=f"(c[1]), "=f"(c[2]), "=f"(c[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(0.0f)););

// mma.m16n8k16 with a and b float16: c += a b.
INSTRUCTION void multiply_float16(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1 SITE)
    PTX(asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1)););

// mma.m16n8k16 with a and b float16: c = a b.
INSTRUCTION void multiply_float16_from_zero(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1 SITE)
    PTX(asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};"
                     : "=f"(c[0]), "=f"(c[1]), "=f"(c[2]), "=f"(c[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(0.0f)););

}  // namespace parapet::kernels::arch
