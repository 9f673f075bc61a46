#pragma once

#include <cstdint>
#include <optional>

#include "cuda/launch_plan.h"
#include "emulate/kernel_config.h"
#include "support/host_call.h"

namespace parapet::testing {

struct HostKernels {
  HostKernel forward = nullptr;
  HostKernel work_list = nullptr;
};

// The product's.
void run_work_list(const ForwardParams& params);

struct EmulatedRun {
  std::uint64_t seed = 1;
  // Of the GPU: 0 has no room for the shapes for short segments.
  int shared_bytes_per_sm = 0;
  // Blocks for each one that the plan asks for.
  int grid_factor = 1;
  // Others than the product's.
  std::optional<HostKernels> kernels{};
};

// Runs a call as a GPU would, its kernels on the emulator. Each block may touch only its own query
// rows, and its own segment's and heads' keys. Returns what the kernels found wrong with the
// lengths.
kernels::Status run_emulated(const HostCall& call, const EmulatedRun& run);

}  // namespace parapet::testing
