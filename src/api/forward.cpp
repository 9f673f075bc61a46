#include "cpu/forward.h"

#include <new>

#include "api/checks.h"
#include "api/problem.h"
#include "api/row_contiguous.h"
#include "parapet/attention.h"
#include "parapet/error.h"

namespace parapet {

void forward(const ForwardTensors& tensors, const ForwardOptions& options) try {
  const api::Extents extents = api::check_call(tensors, options);
  if (tensors.out.num_elements() == 0) return;  // then lse is empty too
  const api::RowContiguous rows(tensors);
  cpu::forward(api::describe(rows.tensors(), options, extents));
  rows.write_back();
} catch (const std::bad_alloc&) {
  throw Error(ErrorCode::kRuntime, "forward: out of memory for temporary storage");
}

}  // namespace parapet
