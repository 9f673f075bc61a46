#pragma once

#include "kernels/mma/forward.h"

// Kernels compiled for the host, found by their configuration. Compiling one under the sanitizers
// takes seconds, so the lists in kernels/ are short and spread over several files.

namespace parapet::testing {

using kernels::ForwardConfig;
using kernels::ForwardParams;

using HostKernel = void (*)(const ForwardParams& params);

// Throws std::out_of_range, naming the kernel, where none of the files has it.
HostKernel find_host_kernel(const ForwardConfig& config);

void add_host_kernel(const ForwardConfig& config, HostKernel kernel);

// The configuration with the shape that it gets on most GPUs, or on one that has room for the shape
// for short segments.
constexpr ForwardConfig usual(ForwardConfig config) {
  config.shape = kernels::forward_shape(config);
  return config;
}
constexpr ForwardConfig for_short(ForwardConfig config) {
  config.shape = kernels::forward_shape(config, {.keys = 0, .shared_bytes_per_sm = 1 << 30});
  return config;
}

template <ForwardConfig kConfig>
void run_host_kernel(const ForwardParams& params) {
  kernels::forward_mma<kConfig>(params);
}

// An object of this type in a source file adds its kernels.
template <ForwardConfig... kConfigs>
struct HostKernels {
  HostKernels() { (add_host_kernel(kConfigs, run_host_kernel<kConfigs>), ...); }
};

}  // namespace parapet::testing
