#include "tools/oracle/oracle.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "tools/oracle/element.h"

namespace parapet::oracle {
namespace {

// Rows `begin` to `end`, clamped so that 0 <= begin <= end <= layout.rows, or what is used of them.
Rows cut(const api::Layout& layout, int64 segment, int64 begin, int64 end) {
  begin = std::clamp<int64>(begin, 0, layout.rows);
  end = std::clamp<int64>(end, begin, layout.rows);
  if (!layout.seqused) return {begin, end - begin};
  return {begin, std::clamp<int64>(layout.seqused[segment], 0, end - begin)};
}

// The elements of a row and head of a segment.
template <class Real>
std::vector<Real> load_row(const api::Problem& problem, const api::Operand& operand, int64 head_dim,
                           int64 segment, int64 row, int64 head) {
  const int64 first =
      segment * operand.batch_stride + row * operand.row_stride + head * operand.head_stride;
  std::vector<Real> elements;
  for (int64 d = 0; d < head_dim; ++d) {
    elements.push_back(static_cast<Real>(load(operand.data, problem.dtype, first + d)));
  }
  return elements;
}

// `Real` is the arithmetic; `round` what is done to weights and outputs.
template <class Real, class Round>
Row attend(const api::Problem& p, int64 segment, int64 head, int64 row, const Round& round) {
  const Rows queries = query_rows(p, segment);
  const Rows keys = key_rows(p, segment);
  const int64 key_head = head / (p.num_heads / p.num_heads_k);
  const int64 diagonal = row + keys.length - queries.length;
  const int64 begin = std::max<int64>(diagonal - p.band.left, 0);
  const int64 end = std::min(diagonal + p.band.right + 1, keys.length);

  Real score_scale = 0;
  const auto q = load_row<Real>(p, p.q, p.head_dim, segment, queries.begin + row, head);
  const auto score = [&](int64 key) {
    const auto k = load_row<Real>(p, p.k, p.head_dim, segment, keys.begin + key, key_head);
    Real dot = 0, size = 0;
    for (std::size_t d = 0; d < q.size(); ++d) {
      dot += q[d] * k[d];
      size += std::fabs(q[d] * k[d]);
    }
    score_scale = std::max(score_scale, size * static_cast<Real>(std::fabs(p.softmax_scale)));
    const Real scaled = dot * static_cast<Real>(p.softmax_scale);
    const Real cap = static_cast<Real>(p.softcap);
    return cap > 0 ? cap * std::tanh(scaled / cap) : scaled;
  };

  constexpr Real kNone = -std::numeric_limits<Real>::infinity();
  const Real sink =
      p.sink ? static_cast<Real>(load(p.sink, p.sink_dtype, head * p.sink_stride)) : kNone;
  std::vector<Real> scores;
  Real maximum = sink;
  for (int64 key = begin; key < end; ++key) {
    scores.push_back(score(key));
    if (!(scores.back() <= maximum) && !std::isnan(maximum)) maximum = scores.back();
  }

  Row result{.out = std::vector<double>(static_cast<std::size_t>(p.head_dim_v), 0.0),
             .lse = maximum,
             .score_scale = static_cast<double>(score_scale)};
  if (maximum == kNone) return result;
  Real sum = std::exp(sink - maximum);
  for (const Real s : scores) sum += std::exp(s - maximum);
  result.lse = static_cast<double>(maximum + std::log(sum));

  std::vector<Real> out(result.out.size(), 0), magnitude(result.out.size(), 0);
  for (std::size_t i = 0; i < scores.size(); ++i) {
    const Real weight = round(std::exp(scores[i] - maximum) / sum);
    const int64 key = begin + static_cast<int64>(i);
    const auto v = load_row<Real>(p, p.v, p.head_dim_v, segment, keys.begin + key, key_head);
    for (std::size_t d = 0; d < v.size(); ++d) {
      out[d] += weight * v[d];
      magnitude[d] += weight * std::fabs(v[d]);
    }
  }
  for (std::size_t d = 0; d < out.size(); ++d) {
    result.out[d] = static_cast<double>(round(out[d]));
    result.scale = std::max(result.scale, static_cast<double>(magnitude[d]));
  }
  return result;
}

}  // namespace

Rows query_rows(const api::Problem& problem, int64 segment) {
  const api::Layout& layout = problem.query;
  if (!layout.packed()) return cut(layout, segment, 0, layout.rows);
  // Where lengths decrease, a segment begins after the ones before it: no row has two results.
  const std::int32_t* cu_seqlens = layout.cu_seqlens;
  const int64 begin = *std::max_element(cu_seqlens, cu_seqlens + segment + 1);
  return cut(layout, segment, begin, cu_seqlens[segment + 1]);
}

Rows key_rows(const api::Problem& problem, int64 segment) {
  const api::Layout& layout = problem.key;
  if (!layout.packed()) return cut(layout, segment, 0, layout.rows);
  return cut(layout, segment, layout.cu_seqlens[segment], layout.cu_seqlens[segment + 1]);
}

Row forward_row(const api::Problem& problem, int64 segment, int64 head, int64 row) {
  return attend<double>(problem, segment, head, row, [](double x) { return x; });
}

Row rounded_row(const api::Problem& problem, int64 segment, int64 head, int64 row) {
  return attend<float>(problem, segment, head, row, [&](float x) {
    return static_cast<float>(round_to(problem.dtype, static_cast<double>(x)));
  });
}

}  // namespace parapet::oracle
