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
  // Of the GPU: what shapes it has room for,
  int shared_bytes_per_sm = kSmall;
  // and with how many multiprocessors: blocks of a few do several units of work each.
  int multiprocessors = 1 << 20;
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
