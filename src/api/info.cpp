#include "parapet/info.h"

#include <omp.h>

#include "cpu/forward.h"
#include "parapet/version.h"

namespace parapet {

const char* version() noexcept {
  return PARAPET_VERSION;
}

CpuInfo cpu_info() {
  return {cpu::simd_target(), cpu::simd_targets(), omp_get_max_threads()};
}

}  // namespace parapet
