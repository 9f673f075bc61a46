#include "kernels/arch/matrix.h"

#include <cstring>

#include "emulate/block.h"
#include "kernels/arch/math.h"

namespace parapet::kernels::arch {
namespace {

using emulate::Access;
using emulate::Call;
using emulate::kWarp;
using emulate::Place;
using emulate::Thread;
using emulate::with_warp;

void load(u32 (&r)[4], u32 row, bool transposed, const Call& call) {
  struct Operands {
    u32* r;
    const std::byte* row;
  } mine{r, Thread::current().block.shared.access(row, 16, Access::kRead, call)};
  with_warp(
      call, mine,
      [&](const auto& lanes) {
        for (u32 matrix = 0; matrix < 4; ++matrix) {
          u16 x[8][8];
          for (u32 i = 0; i < 8; ++i) std::memcpy(x[i], lanes[8 * matrix + i]->row, 16);
          for (u32 lane = 0; lane < kWarp; ++lane) {
            const u32 i = lane / 4, j = lane % 4 * 2;
            const u16 low = transposed ? x[j][i] : x[i][j];
            const u16 high = transposed ? x[j + 1][i] : x[i][j + 1];
            lanes[lane]->r[matrix] = low | static_cast<u32>(high) << 16;
          }
        }
      },
      Place::kSame);
}

// Lane l = 4 i + j has of a the rows i and i + 8 and the columns 2 j, 2 j + 1 and those + 8; of b
// the same numbers as rows, in column i; of c the rows i and i + 8, the columns 2 j and 2 j + 1.
// Products are exact. Hardware adds them in another order and cuts off bits instead of rounding,
// which stays within what tests allow.
void multiply(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1, bool from_zero,
              float (*to_float)(u16), const Call& call) {
  struct Operands {
    float* c;
    const u32* a;
    u32 b[2];
  } mine{c, a, {b0, b1}};
  with_warp(
      call, mine,
      [&](const auto& lanes) {
        float left[16][16], right[16][8], sum[16][8];
        for (u32 lane = 0; lane < kWarp; ++lane) {
          const Operands& own = *lanes[lane];
          const u32 i = lane / 4, j = lane % 4 * 2;
          for (u32 r = 0; r < 4; ++r) {
            sum[i + r / 2 * 8][j + r % 2] = from_zero ? 0.0f : own.c[r];
            for (u32 e = 0; e < 2; ++e) {
              left[i + r % 2 * 8][j + r / 2 * 8 + e] =
                  to_float(static_cast<u16>(own.a[r] >> (16 * e)));
              if (r < 2) right[j + r * 8 + e][i] = to_float(static_cast<u16>(own.b[r] >> (16 * e)));
            }
          }
        }
        for (u32 i = 0; i < 16; ++i)
          for (u32 k = 0; k < 16; ++k)
            for (u32 j = 0; j < 8; ++j) sum[i][j] += left[i][k] * right[k][j];
        for (u32 lane = 0; lane < kWarp; ++lane)
          for (u32 r = 0; r < 4; ++r)
            lanes[lane]->c[r] = sum[lane / 4 + r / 2 * 8][lane % 4 * 2 + r % 2];
      },
      Place::kSame);
}

}  // namespace

void load_matrices(u32 (&r)[4], u32 row, Site site) {
  load(r, row, false, {__func__, site});
}
void load_matrices_transposed(u32 (&r)[4], u32 row, Site site) {
  load(r, row, true, {__func__, site});
}

void multiply_bfloat16(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1, Site site) {
  multiply(c, a, b0, b1, false, from_bfloat16, {__func__, site});
}
void multiply_bfloat16_from_zero(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1, Site site) {
  multiply(c, a, b0, b1, true, from_bfloat16, {__func__, site});
}
void multiply_float16(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1, Site site) {
  multiply(c, a, b0, b1, false, from_float16, {__func__, site});
}
void multiply_float16_from_zero(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1, Site site) {
  multiply(c, a, b0, b1, true, from_float16, {__func__, site});
}

}  // namespace parapet::kernels::arch
