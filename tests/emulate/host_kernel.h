#pragma once

#include "emulate/kernel_config.h"
#include "kernels/mma/forward.h"

// Kernels compiled for the host, found by their configuration. Compiling one under the sanitizers
// takes seconds, so the lists in kernels/ are short and spread over several files.

namespace parapet::testing {

// Throws std::out_of_range, naming the kernel, where none of the files has it.
HostKernel find_host_kernel(const ForwardConfig& config);

void add_host_kernel(const ForwardConfig& config, HostKernel kernel);

template <ForwardConfig kConfig>
void run_host_kernel(const ForwardParams& params) {
  kernels::forward_mma<kConfig>(params);
}

// An object of this type in a source file adds its kernels.
template <ForwardConfig... kConfigs>
struct AddHostKernels {
  AddHostKernels() { (add_host_kernel(kConfigs, run_host_kernel<kConfigs>), ...); }
};

}  // namespace parapet::testing
