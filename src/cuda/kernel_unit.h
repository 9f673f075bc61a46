#pragma once

#include <climits>
#include <string>
#include <string_view>

#include "cuda/param_layout.h"
#include "kernels/mma/traits.h"

// From a kernel's key to the text that NVRTC compiles. A key is a kernels::ForwardConfig: every
// value that is compiled in.

namespace parapet::cuda {

// The entry points of every unit.
inline constexpr const char* kForwardEntry = "parapet_forward";
inline constexpr const char* kWorkListEntry = "parapet_work_list";

// What the shape for short segments is chosen by, on a GPU that has room for it.
inline constexpr kernels::ShapeHints kShortSegments{.keys = 0, .shared_bytes_per_sm = INT_MAX};

// A key as a word: "forward-bf16-d128", "forward-fp16-d192x128-right-softcap". Of the shape it says
// no more than whether it is the usual one or the one for short segments.
std::string kernel_name(const kernels::ForwardConfig& config);

// The key with this name. Throws Error(kInvalidArgument).
kernels::ForwardConfig parse_kernel_name(std::string_view name);

// A small source that instantiates the kernel, after asserting that the device compiler lays
// parameters out as `layout` says that the host does.
std::string translation_unit(const kernels::ForwardConfig& config, const ParamLayout& layout);

}  // namespace parapet::cuda
