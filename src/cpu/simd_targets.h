#pragma once

// Includes Highway's target detection and chooses which targets the kernels are compiled for. A
// source file includes it first of all.
#include <hwy/detect_targets.h>

#undef HWY_DISABLED_TARGETS
// The kernels keep vectors in arrays, which vectors without a compile-time size do not allow; such
// CPUs run their fixed-size target. The newer kinds of AVX-512 add nothing that the kernels use.
#if defined(HWY_AVX3_SPR)
#define PARAPET_NEWER_AVX3 (HWY_AVX3_DL | HWY_AVX3_ZEN4 | HWY_AVX3_SPR)
#elif defined(HWY_AVX3_ZEN4)
#define PARAPET_NEWER_AVX3 (HWY_AVX3_DL | HWY_AVX3_ZEN4)
#else
#define PARAPET_NEWER_AVX3 HWY_AVX3_DL
#endif
#define HWY_DISABLED_TARGETS \
  (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV | PARAPET_NEWER_AVX3)
