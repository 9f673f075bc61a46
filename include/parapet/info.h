#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parapet/export.h"

namespace parapet {

// Version of the library that runs, which may differ from the header's: "major.minor.patch".
PARAPET_EXPORT const char* version() noexcept;

struct CpuInfo {
  std::string simd_target;                // the one in use: "AVX3", "AVX2", "SSE4", "NEON", ...
  std::vector<std::string> simd_targets;  // all that this CPU runs, best first
  int num_threads = 0;                    // what num_threads = 0 means
};
PARAPET_EXPORT CpuInfo cpu_info();

struct GpuInfo {
  int index = 0;  // of Device
  std::string name;
  std::string capability;  // "9.0"
  int num_multiprocessors = 0;
  std::int64_t memory_bytes = 0;
  bool supported = false;  // whether forward runs on it
};

// What is there to compute on GPUs with. A problem says why a version is empty.
struct CudaInfo {
  std::string driver_version;  // the CUDA version that the driver offers: "13.0"
  std::string driver_problem;
  std::vector<GpuInfo> gpus;
  std::string nvrtc_version;  // of the compiler for kernels that did not come with the package
  std::string nvrtc_path;
  std::string nvrtc_problem;
};
PARAPET_EXPORT CudaInfo cuda_info();

}  // namespace parapet
