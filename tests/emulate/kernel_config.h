#pragma once

#include "kernels/core/params.h"
#include "kernels/mma/traits.h"

namespace parapet::testing {

using kernels::ForwardConfig;
using kernels::ForwardParams;

// A kernel compiled for the host.
using HostKernel = void (*)(const ForwardParams& params);

// Shared memory of a multiprocessor of most GPUs, and of those that have the most.
inline constexpr int kSmall = kernels::kSharedBytesPerSm;
inline constexpr int kRoomy = 228 * 1024;

// How many keys a query sees: so many that the kernels for short segments don't pay, or fewer.
inline constexpr plan::int64 kMany = 1 << 20;
inline constexpr plan::int64 kFew = 0;

// The configuration with the shape that it gets for such calls.
constexpr ForwardConfig shaped(ForwardConfig config, int shared_bytes_per_sm, plan::int64 keys) {
  config.shape = kernels::forward_shape(config, {keys, shared_bytes_per_sm});
  return config;
}

}  // namespace parapet::testing
