#pragma once

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

// A key as a word: "forward-bf16-d128", "forward-fp16-d192x128-right-softcap-roomy". Of the shape
// it says no more than whether it is one for GPUs with much shared memory, or for short segments.
std::string kernel_name(const kernels::ForwardConfig& config);

// The key with this name. Throws Error(kInvalidArgument).
kernels::ForwardConfig parse_kernel_name(std::string_view name);

// A small source that instantiates the kernel, after asserting that the device compiler lays
// parameters out as `layout` says that the host does.
std::string translation_unit(const kernels::ForwardConfig& config, const ParamLayout& layout);

}  // namespace parapet::cuda
