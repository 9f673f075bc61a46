#pragma once

#include <vector>

#include "api/problem.h"
#include "cpu/kernels.h"
#include "plan/cpu_schedule.h"
#include "plan/segment.h"

namespace parapet::cpu {

// Computes all rows of the segments. Throws std::bad_alloc.
void run_segments(const api::Problem& problem, const std::vector<plan::Segment>& segments,
                  const Kernels& kernels);

}  // namespace parapet::cpu
