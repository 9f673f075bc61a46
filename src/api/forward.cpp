#include "cpu/forward.h"

#include <new>

#include "api/checks.h"
#include "api/problem.h"
#include "api/row_contiguous.h"
#include "cuda/forward.h"
#include "parapet/attention.h"
#include "parapet/error.h"

namespace parapet {
namespace {

bool is_empty(const ForwardTensors& tensors) {
  return tensors.out.num_elements() == 0;  // then lse is empty too
}

void forward_on_cpu(const ForwardTensors& tensors, const ForwardOptions& options) {
  const api::Extents extents = api::check_call(tensors, options);
  if (is_empty(tensors)) return;
  const api::RowContiguous rows(tensors);
  cpu::forward(api::describe(rows.tensors(), options, extents));
  rows.write_back();
}

void forward_on_gpu(const ForwardTensors& tensors, const ForwardOptions& options) {
  const api::Problem problem = api::make_problem(tensors, options);
  if (is_empty(tensors)) return;
  cuda::forward(problem, {options.stream, options.allocate});
}

}  // namespace

void forward(const ForwardTensors& tensors, const ForwardOptions& options) try {
  if (tensors.q.device.type == DeviceType::kCpu) {
    forward_on_cpu(tensors, options);
  } else {
    forward_on_gpu(tensors, options);
  }
} catch (const std::bad_alloc&) {
  throw Error(ErrorCode::kRuntime, "forward: out of memory for temporary storage");
}

void check(Device device) {
  if (device.type == DeviceType::kCuda) cuda::check(device.index);
}

}  // namespace parapet
