#pragma once

#include <cstdint>
#include <functional>

#include "api/problem.h"
#include "parapet/tensor.h"

namespace parapet::cuda {

struct LaunchOptions {
  void* stream = nullptr;  // a stream of the primary context of the problem's GPU
  // Memory on that GPU for what is queued on the stream during the call. Empty: the driver's pool.
  const std::function<void*(std::int64_t)>& allocate;
};

// Queues the problem's kernels and returns. Changes neither the current device nor context, waits
// for nothing (but with PARAPET_CHECK=1 for the stream, outside of graph capture, to throw what the
// kernels noted about the lengths), and may be captured into a graph, which then follows the
// lengths at replay. Throws Error.
void forward(const api::Problem& problem, const LaunchOptions& options);

// Waits for the GPU and throws Error(kInvalidArgument) where a call since the last check had
// lengths that point outside their tensors.
void check(int device);
// The same for all GPUs that calls ran on, one after the other.
void check();

}  // namespace parapet::cuda
