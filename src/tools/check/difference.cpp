#include "tools/check/difference.h"

#include <algorithm>

#include "tools/check/rows.h"

namespace parapet::tools {
namespace {

struct RowDifference {
  Difference::Place worst;
  int64 numbers = 0;
  int64 different = 0;

  void compare(const RowId& id, std::optional<int64> dim, double first, double second) {
    const double apart = distance(first, second);
    numbers += 1;
    different += apart > 0;
    if (apart > worst.distance) worst = {id, dim, first, second, apart};
  }
};

}  // namespace

Difference find_difference(const api::Problem& first, const api::Problem& second,
                           std::size_t most) {
  Difference difference;
  const std::vector<RowId> ids = all_rows(first);
  std::vector<RowDifference> rows(ids.size());
  parallel_for(ids.size(), [&](std::size_t i) {
    const oracle::Row a = read_row(first, ids[i]);
    const oracle::Row b = read_row(second, ids[i]);
    for (std::size_t d = 0; d < a.out.size(); ++d) {
      rows[i].compare(ids[i], static_cast<int64>(d), a.out[d], b.out[d]);
    }
    if (first.lse && second.lse) rows[i].compare(ids[i], std::nullopt, a.lse, b.lse);
  });
  for (const RowDifference& row : rows) {
    difference.numbers += row.numbers;
    difference.different += row.different;
    if (row.different > 0) difference.worst.push_back(row.worst);
  }
  most = std::min(most, difference.worst.size());
  std::partial_sort(difference.worst.begin(), difference.worst.begin() + static_cast<int64>(most),
                    difference.worst.end(),
                    [](const auto& a, const auto& b) { return a.distance > b.distance; });
  difference.worst.resize(most);
  return difference;
}

}  // namespace parapet::tools
