#include "tools/check/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <utility>

#include "tools/check/rows.h"
#include "tools/oracle/element.h"

namespace parapet::tools {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// How far a number may be from the nearest one that dtype has.
double rounding_error(DType dtype, double value) {
  switch (dtype) {
    case DType::kBFloat16:
      return 0x1p-8 * std::fabs(value);
    case DType::kFloat16:
      return std::max(0x1p-11 * std::fabs(value), 0x1p-25);
    default:
      return 0x1p-24 * std::fabs(value);
  }
}

// What a few float32 operations may lose in rows where the plain computation happens to lose
// nothing: relative to the numbers themselves, and to the terms that scores are sums of. A score
// that is off by x is a weight that is off by a factor of exp(x).
constexpr double kFloat32Floor = 0x1p-20;

double score_error(const oracle::Row& exact) {
  return std::isfinite(exact.score_scale) ? 0x1p-23 * exact.score_scale : 0;
}

int64 lse_index(const api::Problem& problem, const RowId& id, int64 tensor_row) {
  return id.segment * problem.lse_batch_stride + id.head * problem.lse_head_stride +
         tensor_row * problem.lse_row_stride;
}

int64 out_index(const api::Problem& problem, const RowId& id, int64 tensor_row) {
  return id.segment * problem.out.batch_stride + id.head * problem.out.head_stride +
         tensor_row * problem.out.row_stride;
}

// Judges one number. One that is not finite where the exact one is, or the other way round, is
// right when the plain computation in the inputs' precision gives it too: it overflows at the same
// place.
Deviation judge(const RowId& id, std::optional<int64> dim, double found, double exact,
                double rounded, double allowed) {
  Deviation deviation{id, dim, found, exact, distance(found, exact), allowed, 0};
  if (!std::isfinite(deviation.error) && distance(found, rounded) == 0) deviation.error = 0;
  if (deviation.error > 0) {
    deviation.share = std::isfinite(deviation.error) ? deviation.error / allowed : kInfinity;
  }
  return deviation;
}

void keep_worst(std::optional<Deviation>& worst, const Deviation& deviation) {
  if (!worst || deviation.share > worst->share) worst = deviation;
}

}  // namespace

oracle::Row read_row(const api::Problem& problem, const RowId& id) {
  const int64 tensor_row = oracle::query_rows(problem, id.segment).begin + id.row;
  oracle::Row row;
  const int64 first = out_index(problem, id, tensor_row);
  for (int64 d = 0; d < problem.head_dim_v; ++d) {
    row.out.push_back(oracle::load(problem.out.data, problem.dtype, first + d));
  }
  if (problem.lse) row.lse = static_cast<double>(problem.lse[lse_index(problem, id, tensor_row)]);
  return row;
}

std::string Deviation::text() const {
  return fmt::format(
      "error {:.2g} of {:.2g} allowed, at segment {}, head {}, row {}{}: found {:.8g}, "
      "expected {:.8g}",
      error, allowed, row.segment, row.head, row.row, dim ? fmt::format(", dim {}", *dim) : "",
      found, expected);
}

std::vector<RowId> all_rows(const api::Problem& problem) {
  std::vector<RowId> ids;
  for (int64 segment = 0; segment < problem.batch; ++segment) {
    const int64 length = oracle::query_rows(problem, segment).length;
    for (int64 head = 0; head < problem.num_heads; ++head) {
      for (int64 row = 0; row < length; ++row) ids.push_back({segment, head, row});
    }
  }
  return ids;
}

std::vector<RowId> sample_rows(const api::Problem& problem, int64 others, int64 heads,
                               std::uint64_t seed) {
  std::mt19937_64 engine(seed);
  std::vector<RowId> ids;
  heads = std::min(heads, problem.num_heads);
  for (int64 segment = 0; segment < problem.batch; ++segment) {
    const int64 length = oracle::query_rows(problem, segment).length;
    if (length == 0) continue;
    for (int64 i = 0; i < heads; ++i) {
      const int64 head = heads == 1 ? 0 : i * (problem.num_heads - 1) / (heads - 1);
      ids.push_back({segment, head, 0});
      ids.push_back({segment, head, length - 1});
      for (int64 n = 0; n < std::min(others, length); ++n) {
        const auto random = static_cast<int64>(engine() % static_cast<std::uint64_t>(length));
        ids.push_back({segment, head, others < length ? random : n});
      }
    }
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

Reference::Reference(const api::Problem& problem, std::vector<RowId> rows)
    : ids_(std::move(rows)), exact_(ids_.size()), rounded_(ids_.size()) {
  parallel_for(ids_.size(), [&](std::size_t i) {
    exact_[i] = oracle::forward_row(problem, ids_[i].segment, ids_[i].head, ids_[i].row);
    rounded_[i] = oracle::rounded_row(problem, ids_[i].segment, ids_[i].head, ids_[i].row);
  });
  for (std::size_t i = 0; i < ids_.size(); ++i) {
    const oracle::Row& exact = exact_[i];
    const oracle::Row& rounded = rounded_[i];
    for (std::size_t d = 0; d < exact.out.size(); ++d) {
      const double error = distance(rounded.out[d], exact.out[d]) / exact.scale;
      if (std::isfinite(error)) out_tolerance_ = std::max(out_tolerance_, 2 * error);
    }
    const double error = distance(rounded.lse, exact.lse) / (1 + std::fabs(exact.lse));
    if (std::isfinite(error)) lse_tolerance_ = std::max(lse_tolerance_, 2 * error);
  }
  out_tolerance_ += kFloat32Floor;
  lse_tolerance_ += kFloat32Floor;
}

Comparison Reference::compare(const api::Problem& result) const {
  Comparison comparison;
  comparison.rows = static_cast<int64>(ids_.size());
  for (std::size_t i = 0; i < ids_.size(); ++i) {
    const oracle::Row found = read_row(result, ids_[i]);
    const oracle::Row& exact = exact_[i];
    const oracle::Row& rounded = rounded_[i];
    bool wrong = false;
    for (std::size_t d = 0; d < exact.out.size(); ++d) {
      const double allowed = (out_tolerance_ + score_error(exact)) * exact.scale +
                             rounding_error(result.dtype, exact.out[d]);
      const Deviation out = judge(ids_[i], static_cast<int64>(d), found.out[d], exact.out[d],
                                  rounded.out[d], allowed);
      keep_worst(comparison.out, out);
      wrong |= out.share > 1;
    }
    if (result.lse) {
      const Deviation lse = judge(ids_[i], std::nullopt, found.lse, exact.lse, rounded.lse,
                                  lse_tolerance_ * (1 + std::fabs(exact.lse)) + score_error(exact));
      keep_worst(comparison.lse, lse);
      wrong |= lse.share > 1;
    }
    comparison.wrong_rows += wrong;
  }
  return comparison;
}

std::optional<std::string> find_nonzero_unused_row(const api::Problem& problem) {
  // Of a packed tensor all rows are in one piece; of a dense one each batch entry has its own.
  const int64 pieces = problem.query.packed() ? 1 : problem.batch;
  for (int64 piece = 0; piece < pieces; ++piece) {
    std::vector<bool> used(static_cast<std::size_t>(problem.query.rows), false);
    const int64 segments = problem.query.packed() ? problem.batch : 1;
    for (int64 s = 0; s < segments; ++s) {
      const oracle::Rows rows = oracle::query_rows(problem, piece + s);
      std::fill_n(used.begin() + rows.begin, rows.length, true);
    }
    for (int64 row = 0; row < problem.query.rows; ++row) {
      if (used[static_cast<std::size_t>(row)]) continue;
      for (int64 head = 0; head < problem.num_heads; ++head) {
        const RowId id{piece, head, row};
        bool empty = !problem.lse || problem.lse[lse_index(problem, id, row)] == -kInfinity;
        for (int64 d = 0; d < problem.head_dim_v; ++d) {
          empty &=
              oracle::load(problem.out.data, problem.dtype, out_index(problem, id, row) + d) == 0;
        }
        if (empty) continue;
        return fmt::format(
            "expected output 0 and lse -inf in row {} of head {}, which no segment "
            "uses, found something else",
            row, head);
      }
    }
  }
  return std::nullopt;
}

}  // namespace parapet::tools
