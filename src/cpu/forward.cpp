#include "cpu/forward.h"

#include <cstring>
#include <limits>
#include <new>
#include <string>
#include <system_error>

#include "cpu/kernels.h"
#include "cpu/run.h"
#include "parapet/error.h"

namespace parapet::cpu {
namespace {

// out = 0, lse = -infinity for rows [begin, end) of the tensor or of a batch entry.
void fill_rows(const api::Problem& problem, int64 batch, Range rows) {
  const int64 element = size_of(problem.dtype);
  auto* const out = static_cast<std::byte*>(problem.out.data);
  for (int64 row = rows.begin; row < rows.end; ++row) {
    for (int64 head = 0; head < problem.num_heads; ++head) {
      const int64 offset = batch * problem.out.batch_stride + row * problem.out.row_stride +
                           head * problem.out.head_stride;
      std::memset(out + offset * element, 0,
                  static_cast<std::size_t>(problem.head_dim_v * element));
      if (problem.lse) {
        problem.lse[batch * problem.lse_batch_stride + head * problem.lse_head_stride +
                    row * problem.lse_row_stride] = -std::numeric_limits<float>::infinity();
      }
    }
  }
}

// Fills the rows that no segment covers.
void fill_uncovered_rows(const api::Problem& problem, const std::vector<plan::Segment>& segments) {
  int64 covered = 0;  // packed: rows before this one are done
  for (std::size_t b = 0; b < segments.size(); ++b) {
    const plan::Extent& query = segments[b].query;
    if (problem.query.packed()) {
      fill_rows(problem, 0, {covered, query.begin});
      covered = query.end();
    } else {
      fill_rows(problem, static_cast<int64>(b), {query.end(), problem.query.rows});
    }
  }
  if (problem.query.packed()) fill_rows(problem, 0, {covered, problem.query.rows});
}

}  // namespace

std::vector<plan::Segment> read_segments(const api::Problem& problem) {
  const auto used = [](const api::Layout& layout, int64 b, plan::Extent extent) {
    return layout.seqused ? plan::used_extent(extent, layout.seqused[b]) : extent;
  };
  std::vector<plan::Segment> segments;
  segments.reserve(static_cast<std::size_t>(problem.batch));
  int64 query_end = 0;
  for (int64 b = 0; b < problem.batch; ++b) {
    const api::Layout &query = problem.query, &key = problem.key;
    plan::Segment segment{plan::dense_extent(query.rows), plan::dense_extent(key.rows)};
    if (query.packed()) {
      // A row belongs to one segment at most, also where malformed lengths decrease.
      const int64 begin = plan::max(query_end, int64{query.cu_seqlens[b]});
      segment.query = plan::packed_extent(begin, query.cu_seqlens[b + 1], query.rows);
      query_end = segment.query.end();
    }
    if (key.packed()) {
      segment.key = plan::packed_extent(key.cu_seqlens[b], key.cu_seqlens[b + 1], key.rows);
    }
    segment.query = used(query, b, segment.query);
    segment.key = used(key, b, segment.key);
    segments.push_back(segment);
  }
  return segments;
}

void forward(const api::Problem& problem) {
  if (problem.num_heads == 0) return;
  try {
    const std::vector<plan::Segment> segments = read_segments(problem);
    fill_uncovered_rows(problem, segments);
    run_segments(problem, segments, kernels());
  } catch (const std::bad_alloc&) {
    throw Error(ErrorCode::kRuntime, "out of memory for the work space of an attention call");
  } catch (const std::system_error& error) {
    throw Error(ErrorCode::kRuntime, std::string("cannot start a thread: ") + error.what());
  }
}

}  // namespace parapet::cpu
