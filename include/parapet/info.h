#pragma once

#include <string>
#include <vector>

#include "parapet/export.h"

namespace parapet {

// Version of the library that runs, which may differ from the header's: "major.minor.patch".
PARAPET_EXPORT const char* version() noexcept;

struct CpuInfo {
  std::string simd_target;                 // the one in use: "AVX3", "AVX2", "SSE4", "NEON", ...
  std::vector<std::string> simd_targets;   // all that this CPU runs, best first
  int num_threads = 0;                     // what num_threads = 0 means
};
PARAPET_EXPORT CpuInfo cpu_info();

}  // namespace parapet
