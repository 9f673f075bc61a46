// Few rows (decoding). Keys and values are read once, in place; lanes run along the head dim. What
// counts is memory: the order in which rows are touched, and how early they are asked for.

#include <hwy/highway.h>

#include <cstdlib>
#include <type_traits>

#if defined(PARAPET_CPU_FEW_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PARAPET_CPU_FEW_ROWS_INL_H_
#undef PARAPET_CPU_FEW_ROWS_INL_H_
#else
#define PARAPET_CPU_FEW_ROWS_INL_H_
#endif

#include "cpu/few_rows_kernel-inl.h"
#include "cpu/kernels.h"
#include "cpu/rows-inl.h"
#include "plan/cpu_schedule.h"

HWY_BEFORE_NAMESPACE();
namespace parapet::cpu::HWY_NAMESPACE {

// Some rows of one key head and their running softmax. Lane i of the vectors belongs to row i %
// kRows; rows that do not exist repeat the first one.
template <int64 kRows>
struct RowGroup {
  HWY_ALIGN float reference[kLanes];
  HWY_ALIGN float sum[kLanes];
  const float* q[kRows];
  float* out[kRows];
  Range visible[kRows];
  Range seen_by_any;
  Range seen_by_all;
};

// Asks for the rows of keys or values that the next step reads, one at a time, in the order in
// which they lie in memory.
template <class T>
class RowsAhead {
 public:
  RowsAhead(const T* first, const api::Operand& operand, int64 dim, int64 keys, int64 heads)
      : row_(first), bytes_(static_cast<std::size_t>(dim) * sizeof(T)) {
    const bool heads_are_neighbours = std::abs(operand.head_stride) <= std::abs(operand.row_stride);
    inner_stride_ = heads_are_neighbours ? operand.head_stride : operand.row_stride;
    outer_stride_ = heads_are_neighbours ? operand.row_stride : operand.head_stride;
    inner_ = heads_are_neighbours ? heads : keys;
    left_ = keys * heads;
    inner_left_ = inner_;
  }

  HWY_INLINE void fetch() {
    if (left_ == 0) return;
    fetch_row(row_, bytes_);
    if (--left_ == 0) return;
    row_ += inner_stride_;
    if (--inner_left_ == 0) {
      row_ += outer_stride_ - inner_ * inner_stride_;
      inner_left_ = inner_;
    }
  }

 private:
  const T* row_;
  std::size_t bytes_;
  int64 inner_stride_;
  int64 outer_stride_;
  int64 inner_;
  int64 left_;
  int64 inner_left_;
};

template <class T>
struct Ahead {
  Ahead(const Head& head, int64 heads, Range keys)
      : k(head.k<T>(keys.begin), head.problem.k, head.problem.head_dim, keys.size(), heads),
        v(head.v<T>(keys.begin), head.problem.v, head.problem.head_dim_v, keys.size(), heads) {}

  RowsAhead<T> k;
  RowsAhead<T> v;
};

template <int64 kRows>
HWY_INLINE void mask_step(const RowGroup<kRows>& group, Range keys, float* HWY_RESTRICT scores) {
  for (int64 row = 0; row < kRows; ++row) {
    const Range visible = group.visible[row];
    for (int64 i = 0; i < kStepKeys; ++i) {
      const int64 key = keys.begin + i;
      if (key < visible.begin || key >= visible.end) scores[i * kRows + row] = kMinusInfinity;
    }
  }
}

// Scores -> weights, for all rows of a group; scales what was summed where the reference moves.
template <int64 kRows, bool kAboveZero>
HWY_INLINE void exponentiate_step(const Scores& how, int64 dim_v, RowGroup<kRows>& group,
                                  float* HWY_RESTRICT scores) {
  constexpr int64 kScores = kStepKeys * kRows;
  VF to_log2 = hn::Set(df, how.factor);
  VF maximum = hn::Set(df, kMinusInfinity);
  for (int64 i = 0; i < kScores; i += kLanes) {
    maximum = hn::Max(hn::Load(df, scores + i), maximum);
  }
  maximum = hn::Mul(over_lanes_of_row<kRows>(maximum, Larger()), to_log2);
  VF reference = hn::Load(df, group.reference);
  VF sum = hn::Load(df, group.sum);
  if (!hn::AllFalse(df, hn::Gt(maximum, reference))) {
    HWY_ALIGN float factors[kLanes];
    const VF factor = move_reference(maximum, reference);
    hn::Store(factor, df, factors);
    hn::Store(reference, df, group.reference);
    sum = hn::Mul(sum, factor);
    for (int64 row = 0; row < kRows; ++row) {
      for (int64 d = 0; d < dim_v; d += kLanes) {
        float* out = group.out[row] + d;
        hn::Store(scale_sum(hn::Load(df, out), hn::Set(df, factors[row])), df, out);
      }
    }
  }
  const VF finite = finite_reference(df, reference);
  if (HWY_UNLIKELY(is_coarse(finite))) {
    for (int64 i = 0; i < kScores; i += kLanes) {
      hn::Store(hn::Mul(hn::Load(df, scores + i), to_log2), df, scores + i);
    }
    to_log2 = hn::Set(df, 1.0f);
  }
  for (int64 i = 0; i < kScores; i += kLanes) {
    const VF p = weight<kAboveZero>(hn::Load(df, scores + i), to_log2, finite);
    hn::Store(p, df, scores + i);
    sum = hn::Add(sum, p);
  }
  hn::Store(sum, df, group.sum);
}

// A group of rows against the keys of one step. With kInPlace rows of keys and values are whole
// vectors and read where they are.
template <int64 kRows, bool kInPlace, bool kSkipHidden, class T>
HWY_NOINLINE void run_step(const Head& head, Range keys, Ahead<T>& ahead, RowGroup<kRows>& group,
                           float* HWY_RESTRICT buffer) {
  using Element = std::conditional_t<kInPlace, T, float>;
  const api::Problem& problem = head.problem;
  const int64 dim = plan::round_up(problem.head_dim, kLanes);
  const int64 dim_v = plan::round_up(problem.head_dim_v, kLanes);
  // Row `i` of a batch of rows; past the last key the last one is repeated, and masked.
  const auto row = [&](const T* from, int64 i, int64 count, int64 padded)
                       HWY_ATTR -> const Element* {
    if constexpr (kInPlace) {
      return from;
    } else {
      read_row(from, count, buffer + i * padded);
      return buffer + i * padded;
    }
  };
  HWY_ALIGN float scores[kStepKeys * kRows];
  for (int64 i = 0; i < kStepKeys; i += kScoreKeys<kRows>) {
    const Element* k[kScoreKeys<kRows>];
    for (int64 j = 0; j < kScoreKeys<kRows>; ++j) {
      ahead.k.fetch();
      const int64 key = plan::min(keys.begin + i + j, keys.end - 1);
      k[j] = row(head.k<T>(key), j, problem.head_dim, dim);
    }
    score_keys<kRows>(k, group.q, dim, scores + i * kRows);
  }
  const Scores how(problem);
  if (how.capped()) {
    for (int64 i = 0; i < kStepKeys * kRows; i += kLanes) {
      hn::Store(cap(how, hn::Load(df, scores + i)), df, scores + i);
    }
  }
  if (group.seen_by_all.begin > keys.begin || group.seen_by_all.end < keys.begin + kStepKeys ||
      keys.size() < kStepKeys) {
    mask_step(group, keys, scores);
  }
  exponentiate_step<kRows, kSkipHidden>(how, problem.head_dim_v, group, scores);
  for (int64 i = 0; i < kStepKeys; i += kValueKeys) {
    const Element* v[kValueKeys];
    for (int64 j = 0; j < kValueKeys; ++j) {
      ahead.v.fetch();
      const int64 key = plan::min(keys.begin + i + j, keys.end - 1);
      v[j] = row(head.v<T>(key), j, problem.head_dim_v, dim_v);
    }
    add_values_of_keys<kRows, kSkipHidden>(v, scores + i * kRows, dim_v, group.out);
  }
}

// At most two groups of four rows a key head.
constexpr int64 kMaxGroups = plan::kCpuFewRowsHeads * plan::kCpuFewRows / 4;

// The rows of a task's key heads, in groups.
template <int64 kRows>
struct FewRowsWork {
  Head first_head;
  int64 heads;
  int64 groups_of_head;
  Range keys;
  float* buffer;
  RowGroup<kRows>* groups;
};

// Reads the queries of a group and finds what its rows see.
template <int64 kRows, class T>
void start_group(const Head& head, int64 first_row, float* q, float* unused, const RowSums& sums,
                 RowGroup<kRows>& group) {
  const api::Problem& problem = head.problem;
  const VF sign = hn::Set(df, Scores(problem).sign);
  for (int64 i = 0; i < kRows; ++i) {
    const int64 index = first_row + i;
    const bool exists = index < head.rows();
    const Row row = head.row(exists ? index : first_row);
    read_row(head.q<T>(row), problem.head_dim, q);
    for (int64 d = 0; d < problem.head_dim; d += kLanes) {
      hn::Store(hn::Mul(hn::Load(df, q + d), sign), df, q + d);
    }
    group.q[i] = q;
    q += plan::round_up(problem.head_dim, kLanes);
    group.out[i] = exists ? sums.values(index) : unused;
    group.visible[i] = head.visible(row);
  }
  group.seen_by_any = group.seen_by_all = group.visible[0];
  for (const Range& visible : group.visible) {
    group.seen_by_any.end = plan::max(group.seen_by_any.end, visible.end);
    group.seen_by_all.begin = plan::max(group.seen_by_all.begin, visible.begin);
  }
}

template <int64 kRows, bool kInPlace, bool kSkipHidden, class T>
void run_steps(const FewRowsWork<kRows>& work) {
  for (int64 i = 0; i < work.heads * work.groups_of_head; ++i) {
    RowGroup<kRows>& group = work.groups[i];
    hn::Store(hn::Set(df, kMinusInfinity), df, group.reference);
    hn::Store(hn::Zero(df), df, group.sum);
    for (float* out : group.out) {
      for (int64 d = 0; d < work.first_head.problem.head_dim_v; d += kLanes) {
        hn::Store(hn::Zero(df), df, out + d);
      }
    }
  }
  for (int64 begin = work.keys.begin; begin < work.keys.end; begin += kStepKeys) {
    const int64 end = plan::min(begin + kStepKeys, work.keys.end);
    Ahead<T> ahead(work.first_head, work.heads, {end, plan::min(end + kStepKeys, work.keys.end)});
    for (int64 i = 0; i < work.heads * work.groups_of_head; ++i) {
      RowGroup<kRows>& group = work.groups[i];
      if (begin >= group.seen_by_any.end || end <= group.seen_by_any.begin) continue;
      run_step<kRows, kInPlace, kSkipHidden>(work.first_head.neighbour(i / work.groups_of_head),
                                             {begin, end}, ahead, group, work.buffer);
    }
  }
}

// The groups of all key heads, and where their sums go.
template <int64 kRows, bool kInPlace, class T>
void run_groups(const FewRowsWork<kRows>& work, const RowSums& sums) {
  run_steps<kRows, kInPlace, false, T>(work);
  // A weight of zero does not hide a value that is infinite or NaN. Whether there was one shows in
  // the result; then everything is done again with care.
  const int64 rows = work.first_head.rows(), dim_v = work.first_head.problem.head_dim_v;
  VF check = hn::Zero(df);
  for (int64 row = 0; row < work.heads * rows; ++row) {
    for (int64 d = 0; d < dim_v; d += kLanes) {
      check = hn::MulAdd(hn::Load(df, sums.values(row) + d), hn::Zero(df), check);
    }
  }
  if (!hn::AllTrue(df, hn::Eq(check, hn::Zero(df)))) run_steps<kRows, kInPlace, true, T>(work);

  for (int64 head = 0; head < work.heads; ++head) {
    for (int64 row = 0; row < rows; ++row) {
      const RowGroup<kRows>& group = work.groups[head * work.groups_of_head + row / kRows];
      HWY_ALIGN float sum[kLanes];
      hn::Store(over_lanes_of_row<kRows>(hn::Load(df, group.sum), Add()), df, sum);
      sums.reference(head * rows + row) = group.reference[row % kRows];
      sums.sum(head * rows + row) = sum[row % kRows];
    }
  }
}

template <int64 kRows, class T>
void run_few_rows_in_groups(const Head& first_head, const FewRowsTask& task, float* memory) {
  const api::Problem& problem = first_head.problem;
  const int64 heads = task.heads, rows = first_head.rows();
  const int64 groups_of_head = plan::ceil_div(rows, kRows);
  RowGroup<kRows> groups[kMaxGroups];

  // Queries, a row for what does not exist, rows that cannot be read in place, and sums.
  const int64 q_stride = plan::round_up(problem.head_dim, kLanes);
  float* const q = memory;
  float* const unused = q + heads * groups_of_head * kRows * q_stride;
  float* const buffer = unused + RowSums::stride(problem);
  const int64 buffer_floats =
      kStepKeys * plan::round_up(plan::max(problem.head_dim, problem.head_dim_v), kLanes);
  const RowSums sums{task.partial ? task.partial : buffer + buffer_floats,
                     RowSums::stride(problem)};

  for (int64 i = 0; i < heads * groups_of_head; ++i) {
    const int64 head = i / groups_of_head;
    start_group<kRows, T>(first_head.neighbour(head), i % groups_of_head * kRows,
                          q + i * kRows * q_stride, unused, sums.from(head * rows), groups[i]);
  }
  const FewRowsWork<kRows> work{first_head, heads, groups_of_head, task.keys, buffer, groups};
  if (problem.head_dim % kLanes == 0 && problem.head_dim_v % kLanes == 0) {
    run_groups<kRows, true, T>(work, sums);
  } else {
    run_groups<kRows, false, T>(work, sums);
  }
  if (task.partial) return;
  for (int64 i = 0; i < heads; ++i) {
    const Head head = first_head.neighbour(i);
    write_rows<T>(head, head.row(0), sums.from(i * rows), rows);
  }
}

template <class T>
void run_few_rows(const Head& first_head, const FewRowsTask& task, float* memory) {
  switch (first_head.rows()) {
    case 1:
      return run_few_rows_in_groups<1, T>(first_head, task, memory);
    case 2:
      return run_few_rows_in_groups<2, T>(first_head, task, memory);
    default:
      return run_few_rows_in_groups<4, T>(first_head, task, memory);
  }
}

}  // namespace parapet::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // PARAPET_CPU_FEW_ROWS_INL_H_
