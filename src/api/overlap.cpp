#include "api/overlap.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace parapet::api {
namespace {

__extension__ using Wide = __int128;

// An integer from 0 to `most`, times `step` > 0.
struct Term {
  Wide step = 0;
  Wide most = 0;
};

Wide gcd(Wide a, Wide b) {
  while (b != 0) {
    a %= b;
    std::swap(a, b);
  }
  return a;
}

// Whether a sum of terms can be a given number. That is a bounded linear Diophantine equation, hard
// in general; strides of real tensors are each larger than what all smaller ones reach together, or
// equal, and leave one or two values to try for each term.
class Sum {
 public:
  void add(Wide step, Wide most) {
    if (step == 0 || most == 0) return;
    const auto same = std::find_if(terms_.begin(), terms_.begin() + count_,
                                   [&](const Term& term) { return term.step == step; });
    if (same != terms_.begin() + count_) {
      same->most += most;
    } else {
      terms_[static_cast<std::size_t>(count_++)] = {step, most};
    }
  }

  bool can_be(Wide target) {
    std::sort(terms_.begin(), terms_.begin() + count_,
              [](const Term& a, const Term& b) { return a.step > b.step; });
    reach_[count_] = divisor_[count_] = 0;
    for (int i = count_ - 1; i >= 0; --i) {
      reach_[i] = reach_[i + 1] + terms_[i].step * terms_[i].most;
      divisor_[i] = gcd(terms_[i].step, divisor_[i + 1]);
    }
    tries_left_ = 10'000;
    return search(0, target);
  }

 private:
  // Whether the terms from `i` on can add up to `target`.
  bool search(int i, Wide target) {
    if (target < 0 || target > reach_[i]) return false;
    if (target == 0) return true;
    if (target % divisor_[i] != 0) return false;
    const Term& term = terms_[i];
    const Wide most = std::min(term.most, target / term.step);
    const Wide rest = target - reach_[i + 1];
    const Wide least = rest <= 0 ? 0 : (rest + term.step - 1) / term.step;
    for (Wide x = most; x >= least; --x) {
      if (--tries_left_ < 0 || search(i + 1, target - x * term.step)) return true;
    }
    return false;
  }

  static constexpr int kMaxTerms = 2 * TensorView::kMaxRank + 2;
  std::array<Term, kMaxTerms> terms_;
  int count_ = 0;
  std::array<Wide, kMaxTerms + 1> reach_{};    // the most that the terms from i on add up to
  std::array<Wide, kMaxTerms + 1> divisor_{};  // and what divides all their sums
  int tries_left_ = 0;
};

// Bytes [first, last] that a view with elements lies in.
struct Bytes {
  Wide first = 0;
  Wide last = 0;
};

Bytes bytes_of(const TensorView& view) {
  const Wide size = size_of(view.dtype);
  Bytes bytes;
  bytes.first = static_cast<Wide>(reinterpret_cast<std::uintptr_t>(view.data));
  bytes.last = bytes.first + size - 1;
  for (int dim = 0; dim < view.rank; ++dim) {
    const Wide reach = size * view.strides[dim] * (view.shape[dim] - 1);
    (reach < 0 ? bytes.first : bytes.last) += reach;
  }
  return bytes;
}

Wide magnitude(std::int64_t stride) {
  return stride < 0 ? -Wide{stride} : Wide{stride};
}

}  // namespace

bool overlaps_itself(const TensorView& view) {
  if (view.num_elements() == 0) return false;
  // Two elements that share memory differ by d[i] in each index, with sum(stride[i] * d[i]) = 0.
  // Let `first` be the first index that differs; d[first] >= 1, as the two can change places.
  for (int first = 0; first < view.rank; ++first) {
    if (view.shape[first] < 2) continue;
    Sum sum;
    sum.add(magnitude(view.strides[first]), view.shape[first] - 2);
    Wide target = -magnitude(view.strides[first]);
    for (int dim = first + 1; dim < view.rank; ++dim) {
      // From -most to most, written as from 0 to 2 * most.
      const Wide most = view.shape[dim] - 1;
      sum.add(magnitude(view.strides[dim]), 2 * most);
      target += magnitude(view.strides[dim]) * most;
    }
    if (sum.can_be(target)) return true;
  }
  return false;
}

bool overlap(const TensorView& a, const TensorView& b) {
  if (a.num_elements() == 0 || b.num_elements() == 0) return false;
  const Bytes bytes_a = bytes_of(a), bytes_b = bytes_of(b);
  if (bytes_a.last < bytes_b.first || bytes_b.last < bytes_a.first) return false;
  // A byte of a is first_a + sum(step_a * i); one of b, counted from its end, last_b - sum(step_b *
  // j).
  Sum sum;
  for (const TensorView* view : {&a, &b}) {
    const std::int64_t size = size_of(view->dtype);
    sum.add(1, size - 1);
    for (int dim = 0; dim < view->rank; ++dim) {
      sum.add(magnitude(view->strides[dim]) * size, view->shape[dim] - 1);
    }
  }
  return sum.can_be(bytes_b.last - bytes_a.first);
}

}  // namespace parapet::api
