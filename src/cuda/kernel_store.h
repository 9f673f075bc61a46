#pragma once

#include <string>

#include "cuda/arch.h"
#include "cuda/kernel_cache.h"
#include "cuda/nvrtc.h"
#include "kernels/mma/traits.h"

// Where the machine code for a key comes from: the directory that came with the package, else the
// user's cache, else NVRTC.

namespace parapet::cuda {

// Code for a GPU of architecture `device`. Throws Error(kRuntime) where it would have to be
// compiled and cannot be.
KernelImage find_kernel(const kernels::ForwardConfig& config, Arch device);

// Code for exactly `arch` by the NVRTC that is found: from the user's cache, else compiled.
KernelImage compile_kernel(const kernels::ForwardConfig& config, Arch arch);

// What a kernel is found by in a directory of precompiled ones, which holds the work of one
// compiler, whichever that was.
CacheKey precompiled_key(const kernels::ForwardConfig& config, Arch arch);

// PARAPET_PRECOMPILED_DIR, else parapet-kernels beside this library.
std::string precompiled_directory();

// How much the cache may hold: PARAPET_CACHE_MB, else 500.
std::int64_t cache_limit_bytes();

}  // namespace parapet::cuda
