// Rows at the end of their keys: merging what chunks of keys made of them, and writing them.

#include <hwy/highway.h>

#if defined(PARAPET_CPU_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PARAPET_CPU_ROWS_INL_H_
#undef PARAPET_CPU_ROWS_INL_H_
#else
#define PARAPET_CPU_ROWS_INL_H_
#endif

#include "cpu/kernels.h"
#include "cpu/softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace parapet::cpu::HWY_NAMESPACE {

HWY_INLINE void copy_rows(const RowSums& rows, int64 count, const RowSums& to) {
  std::memcpy(to.memory, rows.memory,
              static_cast<std::size_t>(count * rows.row_stride) * sizeof(float));
}

// Adds what a later chunk of keys made of some rows to their sums so far. Chunks are added one
// after the other, wherever they were computed, so the result does not depend on that.
HWY_NOINLINE void add_chunk(const RowSums& chunk, int64 count, int64 dim_v, const RowSums& sums) {
  for (int64 row = 0; row < count; ++row) {
    const float reference = sums.reference(row), added = chunk.reference(row);
    if (added == kMinusInfinity) continue;  // the row sees none of these keys
    const float moved = plan::max(reference, added);
    const float factor = std::exp2(reference - moved), weight = std::exp2(added - moved);
    sums.reference(row) = moved;
    sums.sum(row) = sums.sum(row) * factor + chunk.sum(row) * weight;
    const float* HWY_RESTRICT from = chunk.values(row);
    float* HWY_RESTRICT to = sums.values(row);
    for (int64 d = 0; d < dim_v; d += kLanes) {
      const VF old = scale_sum(hn::LoadU(df, to + d), hn::Set(df, factor));
      const VF extra = scale_sum(hn::LoadU(df, from + d), hn::Set(df, weight));
      hn::StoreU(hn::Add(old, extra), df, to + d);
    }
  }
}

HWY_INLINE float load_sink(const api::Problem& problem, int64 head) {
  const auto load = [&](auto element) HWY_ATTR {
    const auto* sinks = static_cast<const decltype(element)*>(problem.sink);
    return hn::GetLane(load_first(d4, sinks + head * problem.sink_stride, 1));
  };
  switch (problem.sink_dtype) {
    case DType::kFloat16:
      return load(hwy::float16_t());
    case DType::kBFloat16:
      return load(hwy::bfloat16_t());
    default:
      return load(float());
  }
}

// Divides by the sums of weights and writes `count` rows from `row` on, with their log-sum-exp.
template <class T>
HWY_NOINLINE void write_rows(const Head& head, Row row, const RowSums& sums, int64 count) {
  const api::Problem& problem = head.problem;
  HWY_ALIGN float reference[kLanes], sum[kLanes], sink[kLanes], factor[kLanes], total[kLanes];
  for (int64 begin = 0; begin < count; begin += kLanes) {
    const int64 lanes = plan::min(kLanes, count - begin);
    Row end = row;
    for (int64 i = 0; i < kLanes; ++i) {
      const int64 source = begin + plan::min(i, lanes - 1);
      reference[i] = sums.reference(source);
      sum[i] = sums.sum(source);
      if (i >= lanes) continue;
      if (problem.sink) sink[i] = load_sink(problem, end.head);
      end = head.next(end);
    }
    for (int64 i = lanes; i < kLanes; ++i) sink[i] = sink[lanes - 1];
    const auto finished =
        end_rows(df, hn::Load(df, reference), hn::Load(df, sum), problem.sink ? sink : nullptr);
    hn::Store(finished.factor, df, factor);
    hn::Store(finished.reference, df, reference);
    hn::Store(finished.total, df, total);
    for (int64 i = 0; i < lanes; ++i, row = head.next(row)) {
      write_row(sums.values(begin + i), problem.head_dim_v, hn::Set(df, factor[i]),
                head.out<T>(row));
      if (problem.lse) *head.lse(row) = log_sum_exp(reference[i], total[i]);
    }
  }
}

template <class T>
void merge_rows(const Head& head, int64 chunks, int64 chunk_stride, float* partial) {
  const RowSums sums{partial, RowSums::stride(head.problem)};
  for (int64 chunk = 1; chunk < chunks; ++chunk) {
    add_chunk({partial + chunk * chunk_stride, sums.row_stride}, head.rows(),
              head.problem.head_dim_v, sums);
  }
  write_rows<T>(head, head.row(0), sums, head.rows());
}

}  // namespace parapet::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // PARAPET_CPU_ROWS_INL_H_
