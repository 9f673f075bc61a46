#pragma once

#include "api/problem.h"
#include "plan/segment.h"

namespace parapet::cpu {

using plan::int64;
using plan::Range;

// One of the rows that share a key head: a query and one of the query heads.
struct Row {
  int64 query = 0;  // of the segment
  int64 head = 0;   // of the problem
};

// One key head of one segment. Its rows are numbered query * group + query head within the group:
// rows that see the same keys are neighbours, the keys that they see never decrease, and grouped
// heads share panels however few queries there are.
class Head {
 public:
  Head(const api::Problem& call, const plan::Segment& segment, int64 batch, int64 head_k)
      : problem(call),
        seqlen_q(segment.query.length),
        seqlen_k(segment.key.length),
        group(call.num_heads / call.num_heads_k),
        query_begin_(segment.query.begin),
        key_begin_(segment.key.begin),
        batch_(batch),
        head_k_(head_k) {}

  // The key head `offset` further.
  Head neighbour(int64 offset) const {
    Head head = *this;
    head.head_k_ += offset;
    return head;
  }

  int64 rows() const { return seqlen_q * group; }
  Row row(int64 index) const { return {index / group, head_k_ * group + index % group}; }
  Row next(Row row) const {
    const bool last = ++row.head == (head_k_ + 1) * group;
    return last ? Row{row.query + 1, head_k_ * group} : row;
  }
  Range visible(Row row) const {
    return plan::visible_keys(problem.band, row.query, seqlen_q, seqlen_k);
  }

  template <class T>
  const T* q(Row row) const {
    return at<const T>(problem.q, query_begin_ + row.query, row.head);
  }
  template <class T>
  const T* k(int64 key) const {
    return at<const T>(problem.k, key_begin_ + key, head_k_);
  }
  template <class T>
  const T* v(int64 key) const {
    return at<const T>(problem.v, key_begin_ + key, head_k_);
  }
  template <class T>
  T* out(Row row) const {
    return at<T>(problem.out, query_begin_ + row.query, row.head);
  }
  float* lse(Row row) const {
    return problem.lse + batch_ * problem.lse_batch_stride + row.head * problem.lse_head_stride +
           (query_begin_ + row.query) * problem.lse_row_stride;
  }

  const api::Problem& problem;
  int64 seqlen_q;
  int64 seqlen_k;
  int64 group;

 private:
  template <class T>
  T* at(const api::Operand& operand, int64 row, int64 head) const {
    return static_cast<T*>(operand.data) + batch_ * operand.batch_stride +
           row * operand.row_stride + head * operand.head_stride;
  }

  int64 query_begin_;
  int64 key_begin_;
  int64 batch_;
  int64 head_k_;
};

}  // namespace parapet::cpu
