#pragma once

#include "tools/check/check.h"
#include "tools/json/json.h"

// How a comparison with the oracle is told.

namespace parapet::cli {

// Lines "<name> out ..." and "<name> lse ..." with the worst deviation of each.
void print_comparison(std::string_view name, const tools::Comparison& comparison);

tools::Json comparison_json(const tools::Comparison& comparison);

}  // namespace parapet::cli
