#pragma once

// src/plan is compiled by the host compiler and by NVRTC alike, so it uses neither the standard
// library nor anything that only one of them has.
#if defined(__CUDACC__)
#define PARAPET_HOST_DEVICE __host__ __device__
#else
#define PARAPET_HOST_DEVICE
#endif

namespace parapet::plan {

using int64 = long long;
static_assert(sizeof(int64) == 8);

template <class T>
PARAPET_HOST_DEVICE constexpr T min(T a, T b) {
  return b < a ? b : a;
}

template <class T>
PARAPET_HOST_DEVICE constexpr T max(T a, T b) {
  return a < b ? b : a;
}

template <class T>
PARAPET_HOST_DEVICE constexpr T clamp(T x, T low, T high) {
  return x < low ? low : high < x ? high : x;
}

// a >= 0, b > 0, and no overflow for any such a.
PARAPET_HOST_DEVICE constexpr int64 ceil_div(int64 a, int64 b) {
  return a / b + (a % b != 0);
}

PARAPET_HOST_DEVICE constexpr int64 round_up(int64 a, int64 b) {
  return ceil_div(a, b) * b;
}

}  // namespace parapet::plan
