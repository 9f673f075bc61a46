#pragma once

#include <cmath>
#include <cstddef>
#include <exception>
#include <limits>

#include "tools/check/check.h"
#include "tools/oracle/oracle.h"

// What the comparisons share.

namespace parapet::tools {

// The distance of two numbers that may be infinite or NaN; NaN equals NaN.
inline double distance(double a, double b) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return 0;
  return std::isfinite(a) && std::isfinite(b) ? std::fabs(a - b)
                                              : std::numeric_limits<double>::infinity();
}

// out and lse of a row as a result has them; lse is 0 where the result has none.
oracle::Row read_row(const api::Problem& problem, const RowId& id);

// Calls f(i) for 0 <= i < count on all threads; rethrows an exception of one of them.
template <class F>
void parallel_for(std::size_t count, const F& f) {
  std::exception_ptr error;
#pragma omp parallel for schedule(dynamic)
  for (std::size_t i = 0; i < count; ++i) {
    try {
      f(i);
    } catch (...) {
#pragma omp critical
      error = std::current_exception();
    }
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace parapet::tools
