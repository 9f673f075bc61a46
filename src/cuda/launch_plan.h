#pragma once

#include "api/problem.h"
#include "kernels/core/params.h"
#include "kernels/mma/traits.h"

namespace parapet::cuda {

// What a call becomes on a GPU. Made without a look at one, and without reading a tensor.
struct LaunchPlan {
  static constexpr int kWorkspaceAlignment = 16;

  // Whether a first kernel lists the query tiles: where lengths are in GPU memory.
  bool uses_work_list() const { return work_list_capacity > 0; }
  // Memory that the kernels need besides the tensors.
  plan::int64 workspace_bytes() const;
  // Points the parameters into that memory.
  void set_workspace(void* memory);

  kernels::ForwardConfig config;
  kernels::ForwardParams params{};     // workspace and status are still null
  plan::int64 work_list_capacity = 0;  // units of work at most
  int blocks =
      0;  // of the attention kernel: as many as run at once, or fewer if there is less work
};

// For a GPU with so many multiprocessors of so much shared memory. Throws Error(kNotImplemented)
// for what the kernels cannot run.
LaunchPlan plan_launch(const api::Problem& problem, int shared_bytes_per_sm, int multiprocessors);

}  // namespace parapet::cuda
