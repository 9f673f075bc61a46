#include "cuda/forward.h"

#include <fmt/format.h>

#include <cstdlib>
#include <optional>
#include <string_view>

#include "cuda/gpu.h"
#include "cuda/launch_plan.h"
#include "parapet/error.h"

namespace parapet::cuda {
namespace {

using plan::int64;

void throw_if_bad(const kernels::Status& status) {
  if (status.array == kernels::kNoArray) return;
  const auto fail = [&](const char* name, const char* expected) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("{}[{}]: expected {}, found {}; it was clamped, so that nothing outside the "
                    "tensors was read or written",
                    name, status.index, expected, status.value));
  };
  constexpr const char* kSorted = "0 first, then rows of its tensor that never decrease";
  constexpr const char* kUsed = "0 to the rows of its segment";
  switch (status.array) {
    case kernels::kCuSeqlensQ:
      fail("cu_seqlens_q", kSorted);
      break;
    case kernels::kCuSeqlensK:
      fail("cu_seqlens_k", kSorted);
      break;
    case kernels::kSequsedQ:
      fail("seqused_q", kUsed);
      break;
    default:
      fail("seqused_k", kUsed);
      break;
  }
}

void* allocate(const LaunchOptions& options, int64 bytes) {
  void* memory = options.allocate(bytes);
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  if (memory == nullptr || address % LaunchPlan::kWorkspaceAlignment != 0) {
    throw Error(ErrorCode::kRuntime,
                fmt::format("allocate: expected {} bytes at a multiple of {}, found address {:#x}",
                            bytes, LaunchPlan::kWorkspaceAlignment, address));
  }
  return memory;
}

bool checks_every_call() {
  static const bool checks = [] {
    const char* value = std::getenv("PARAPET_CHECK");
    return value != nullptr && std::string_view(value) == "1";
  }();
  return checks;
}

}  // namespace

void forward(const api::Problem& problem, const LaunchOptions& options) {
  Gpu& gpu = Gpu::get(problem.device.index);
  LaunchPlan launch = plan_launch(problem, gpu.shared_bytes_per_sm(), gpu.multiprocessors());
  const auto stream = static_cast<StreamHandle>(options.stream);
  const CurrentContext current(gpu.context());
  const ForwardKernels& loaded = gpu.kernels(launch.config);

  std::optional<StreamBuffer> pooled;
  if (launch.uses_work_list()) {
    const int64 bytes = launch.workspace_bytes();
    launch.set_workspace(options.allocate ? allocate(options, bytes)
                                          : pooled.emplace(bytes, stream).data());
    launch.params.status = gpu.status();
    loaded.work_list.launch(1, kernels::kWorkListThreads, &launch.params, stream);
  }
  if (launch.blocks > 0) {
    loaded.forward.launch(static_cast<unsigned int>(launch.blocks),
                          kernels::forward_threads(launch.config), &launch.params, stream);
  }
  if (checks_every_call() && launch.uses_work_list() && !is_capturing(stream)) {
    throw_if_bad(gpu.take_status(stream));
  }
}

void check(int device) {
  throw_if_bad(Gpu::get(device).take_status());
}

void check() {
  for (Gpu* gpu : Gpu::in_use()) throw_if_bad(gpu->take_status());
}

}  // namespace parapet::cuda
