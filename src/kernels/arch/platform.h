#pragma once

// Device code is written once. A CUDA compiler sees every instruction's PTX; a host compiler sees
// only its declaration, which an emulator defines. Neither the toolkit's headers nor the standard
// library are needed.

#if defined(__CUDACC__)

#define DEVICE __device__ __forceinline__
#define UNROLL _Pragma("unroll")
#define NO_UNROLL _Pragma("unroll 1")

// The one list of instructions: `INSTRUCTION result name(operands SITE) PTX(body);`.
#define INSTRUCTION __device__ __forceinline__
#define PTX(...) {__VA_ARGS__}

// Where the kernel calls an instruction that can wait or fail, so that an emulator's report can
// name the line. SITE follows other parameters.
#define ONLY_SITE
#define SITE

#else

#define DEVICE inline
#define UNROLL
#define NO_UNROLL
#define INSTRUCTION
#define PTX(...)
#define ONLY_SITE ::parapet::kernels::arch::Site site = {__builtin_FILE(), __builtin_LINE()}
#define SITE , ONLY_SITE

#endif

namespace parapet::kernels::arch {

#if !defined(__CUDACC__)
struct Site {
  const char* file;
  int line;
};
#endif

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;

inline constexpr float kInfinity = __builtin_bit_cast(float, 0x7f800000);

// What one 16-byte access moves.
struct alignas(16) Unit {
  u32 word[4];
};
struct alignas(8) HalfUnit {
  u32 word[2];
};

}  // namespace parapet::kernels::arch
