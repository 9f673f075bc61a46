#pragma once

#include "emulate/kernel_config.h"
#include "kernels/core/params.h"

namespace parapet::testing {

// Which kernel is made wrong: a small and quick one that uses everything.
inline constexpr ForwardConfig kMutantConfig =
    shaped({.head_dim = 64, .head_dim_v = 64, .right_edge = true}, kRoomy, kFew);

}  // namespace parapet::testing
