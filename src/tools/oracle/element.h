#pragma once

#include "parapet/tensor.h"
#include "plan/host_device.h"

// Single elements of any floating dtype, as float64. Straight arithmetic on the value, not the
// tricks on bits that backends use.

namespace parapet::oracle {

double load(const void* data, DType dtype, plan::int64 index);

// Stores round_to(dtype, value).
void store(void* data, DType dtype, plan::int64 index, double value);

// The nearest number that dtype has, ties to even; infinity beyond its largest.
double round_to(DType dtype, double value);

}  // namespace parapet::oracle
