#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "api/problem.h"
#include "tools/oracle/oracle.h"

// Is a result right? Its rows are compared with the oracle's, and the error that is allowed comes
// from the data: twice what the same computation done plainly in the inputs' precision makes of it.

namespace parapet::tools {

using plan::int64;

// A row of a segment's queries, as one head computes it.
struct RowId {
  int64 segment = 0;
  int64 head = 0;
  int64 row = 0;

  friend auto operator<=>(const RowId&, const RowId&) = default;
};

std::vector<RowId> all_rows(const api::Problem& problem);

// Of each segment the first row, the last one and `others` random ones (all, when it has no more),
// for `heads` heads: the first, the last, and others evenly between.
std::vector<RowId> sample_rows(const api::Problem& problem, int64 others, int64 heads,
                               std::uint64_t seed);

// The element of a result that is furthest from what it should be, in parts of what is allowed.
struct Deviation {
  // "error 3.1e-04 of 1.2e-03 allowed at segment 0, head 3, row 17, dim 5: found 0.25, expected
  // 0.2503"
  std::string text() const;

  RowId row;
  std::optional<int64> dim;  // of out
  double found = 0;
  double expected = 0;
  double error = 0;  // infinite where one is finite and the other is not
  double allowed = 0;
  double share = 0;  // error / allowed: above 1 is wrong
};

struct Comparison {
  bool ok() const { return wrong_rows == 0; }

  int64 rows = 0;
  int64 wrong_rows = 0;
  std::optional<Deviation> out;  // the worst, where anything was compared
  std::optional<Deviation> lse;
};

// The exact result of some rows.
class Reference {
 public:
  Reference(const api::Problem& problem, std::vector<RowId> rows);

  // Compares them with what `result`, a problem with the same inputs, has in out and lse.
  Comparison compare(const api::Problem& result) const;

 private:
  std::vector<RowId> ids_;
  std::vector<oracle::Row> exact_;
  std::vector<oracle::Row> rounded_;
  double out_tolerance_ = 0;  // relative to a row's scale
  double lse_tolerance_ = 0;  // relative to 1 + |lse|
};

// Rows that no segment uses must have output 0 and lse -infinity. Describes the first that has not.
std::optional<std::string> find_nonzero_unused_row(const api::Problem& problem);

}  // namespace parapet::tools
