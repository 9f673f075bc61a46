#pragma once

#include "parapet/tensor.h"

// Whether strided views share memory: exact for views that arise from slicing, transposing and
// reshaping a buffer, such as the heads of q, k, v and out interleaved in one. For stride patterns
// that take too long to decide the answer is yes.

namespace parapet::api {

// Whether two elements of a view share a byte.
bool overlaps_itself(const TensorView& view);

// Whether an element of one view shares a byte with an element of the other.
bool overlap(const TensorView& a, const TensorView& b);

}  // namespace parapet::api
