#pragma once

#include <gtest/gtest.h>

#include <cstdlib>

#include "cuda/nvrtc.h"
#include "parapet/error.h"

// Leaves the test where there is no NVRTC. Where PARAPET_NVRTC names one, it has to work.
#define PARAPET_NVRTC_OR_SKIP()                                          \
  try {                                                                  \
    ::parapet::cuda::Nvrtc::instance();                                  \
  } catch (const ::parapet::Error& error) {                              \
    if (std::getenv("PARAPET_NVRTC") != nullptr) FAIL() << error.what(); \
    GTEST_SKIP() << error.what();                                        \
  }                                                                      \
  static_cast<void>(0)
