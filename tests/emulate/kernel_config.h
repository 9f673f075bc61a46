#pragma once

#include "kernels/core/params.h"
#include "kernels/mma/traits.h"

namespace parapet::testing {

using kernels::ForwardConfig;
using kernels::ForwardParams;

// A kernel compiled for the host.
using HostKernel = void (*)(const ForwardParams& params);

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

}  // namespace parapet::testing
