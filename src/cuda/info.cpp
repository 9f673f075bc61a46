#include "parapet/info.h"

#include <fmt/format.h>

#include "cuda/arch.h"
#include "cuda/driver.h"
#include "cuda/nvrtc.h"
#include "parapet/error.h"

namespace parapet {
namespace {

GpuInfo gpu_info(const cuda::Driver& driver, int index) {
  const cuda::GpuProperties properties = driver.properties(index);
  return {.index = index,
          .name = properties.name,
          .capability = fmt::format("{}.{}", properties.major, properties.minor),
          .num_multiprocessors = properties.num_multiprocessors,
          .memory_bytes = properties.memory_bytes,
          .supported = properties.major >= cuda::kOldestCapability};
}

}  // namespace

CudaInfo cuda_info() {
  CudaInfo info;
  try {
    const cuda::Driver& driver = cuda::Driver::instance();
    info.driver_version = driver.version();
    for (int i = 0; i < driver.device_count(); ++i) info.gpus.push_back(gpu_info(driver, i));
  } catch (const Error& error) {
    info.driver_problem = error.what();
  }
  try {
    const cuda::Nvrtc& nvrtc = cuda::Nvrtc::instance();
    info.nvrtc_version = nvrtc.version();
    info.nvrtc_path = nvrtc.path();
  } catch (const Error& error) {
    info.nvrtc_problem = error.what();
  }
  return info;
}

}  // namespace parapet
