#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "tools/check/check.h"

namespace parapet::tools {

// How two results of one call differ, without asking which one is right.
struct Difference {
  struct Place {
    RowId row;
    std::optional<int64> dim;  // of out; absent: lse
    double first = 0;
    double second = 0;
    double distance = 0;  // infinite where only one is finite
  };

  int64 numbers = 0;         // compared
  int64 different = 0;       // of them
  std::vector<Place> worst;  // the rows that differ most, each at its worst place; largest first
};

// Compares out, and lse where both have it, in all rows that segments use.
Difference find_difference(const api::Problem& first, const api::Problem& second, std::size_t most);

}  // namespace parapet::tools
