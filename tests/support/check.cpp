#include "support/check.h"

#include <gtest/gtest.h>

#include "api/problem.h"
#include "tools/check/check.h"

namespace parapet::testing {

void expect_right(const ForwardTensors& tensors, const ForwardOptions& options) {
  const api::Problem problem = api::make_problem(tensors, options);
  forward(tensors, options);
  const tools::Comparison found =
      tools::Reference(problem, tools::all_rows(problem)).compare(problem);
  EXPECT_TRUE(found.ok()) << found.wrong_rows << " of " << found.rows << " rows are wrong; out: "
                          << (found.out ? found.out->text() : "not compared")
                          << "; lse: " << (found.lse ? found.lse->text() : "not compared");
  EXPECT_EQ(tools::find_nonzero_unused_row(problem), std::nullopt);
}

}  // namespace parapet::testing
