// Whether views share memory, against enumeration of their bytes.

#include "api/overlap.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iterator>
#include <random>
#include <vector>

namespace parapet::api {
namespace {

// Nothing is read, so that the views may lie anywhere.
constexpr std::uintptr_t kAddress = 1 << 20;

TensorView view(DType dtype, std::int64_t byte_offset, std::vector<std::int64_t> shape,
                std::vector<std::int64_t> strides) {
  TensorView view = TensorView::contiguous(
      reinterpret_cast<void*>(kAddress + static_cast<std::uintptr_t>(byte_offset)), dtype, shape);
  std::ranges::copy(strides, view.strides.begin());
  return view;
}

// The bytes of all elements; one that several elements share appears several times. Sorted.
std::vector<std::int64_t> enumerate(const TensorView& view) {
  std::vector<std::int64_t> bytes;
  const auto first = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(view.data));
  const std::function<void(int, std::int64_t)> visit = [&](int dim, std::int64_t element) {
    if (dim == view.rank) {
      for (std::int64_t i = 0; i < size_of(view.dtype); ++i) {
        bytes.push_back(first + element * size_of(view.dtype) + i);
      }
      return;
    }
    for (std::int64_t i = 0; i < view.shape[dim]; ++i) {
      visit(dim + 1, element + i * view.strides[dim]);
    }
  };
  visit(0, 0);
  std::ranges::sort(bytes);
  return bytes;
}

bool enumerated_overlap(const TensorView& a, const TensorView& b) {
  std::vector<std::int64_t> common;
  std::ranges::set_intersection(enumerate(a), enumerate(b), std::back_inserter(common));
  return !common.empty();
}

bool enumerated_overlap(const TensorView& a) {
  const std::vector<std::int64_t> bytes = enumerate(a);
  return std::ranges::adjacent_find(bytes) != bytes.end();
}

class RandomViews {
 public:
  TensorView next() {
    const DType dtype = pick(0, 1) ? DType::kFloat32 : DType::kBFloat16;
    std::vector<std::int64_t> shape, strides;
    for (std::int64_t rank = pick(1, 4); rank > 0; --rank) {
      shape.push_back(pick(0, 12) == 0 ? 0 : pick(1, 4));
      strides.push_back(pick(0, 3) == 0 ? pick(-3, 3) : pick(-20, 20));
    }
    return view(dtype, 2048 + pick(-64, 64), shape, strides);
  }

 private:
  std::int64_t pick(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(generator_);
  }
  std::mt19937 generator_{1};
};

TEST(Overlap, OfTwoViewsIsExact) {
  RandomViews views;
  int overlaps = 0;
  for (int i = 0; i < 20'000; ++i) {
    const TensorView a = views.next(), b = views.next();
    const bool expected = enumerated_overlap(a, b);
    overlaps += expected;
    ASSERT_EQ(overlap(a, b), expected) << "pair " << i;
  }
  EXPECT_GT(overlaps, 2000);
  EXPECT_LT(overlaps, 18'000);
}

TEST(Overlap, OfAViewWithItselfIsExact) {
  RandomViews views;
  int overlaps = 0;
  for (int i = 0; i < 20'000; ++i) {
    const TensorView a = views.next();
    const bool expected = enumerated_overlap(a);
    overlaps += expected;
    ASSERT_EQ(overlaps_itself(a), expected) << "view " << i;
  }
  EXPECT_GT(overlaps, 2000);
  EXPECT_LT(overlaps, 18'000);
}

// A model's fused projections: far too many elements to enumerate, decided at once.
TEST(Overlap, BigInterleavedViews) {
  const std::int64_t rows = 1'000'000, width = 3 * 56 * 128;
  const auto heads = [&](std::int64_t first, std::int64_t count) {
    return view(DType::kBFloat16, 2 * first * 128, {rows, count, 128}, {width, 128, 1});
  };
  EXPECT_FALSE(overlap(heads(0, 56), heads(56, 56)));
  EXPECT_FALSE(overlap(heads(56, 56), heads(0, 56)));
  EXPECT_FALSE(overlap(heads(112, 56), heads(56, 56)));
  EXPECT_TRUE(overlap(heads(0, 57), heads(56, 56)));
  EXPECT_FALSE(overlaps_itself(heads(0, 168)));
  EXPECT_TRUE(overlaps_itself(heads(0, 169)));
}

TEST(Overlap, SingleElementsOfOneRow) {
  const auto every_third = [](std::int64_t first) {
    return view(DType::kFloat32, 4 * first, {1'000'000, 8, 64}, {8 * 64 * 3, 64 * 3, 3});
  };
  EXPECT_FALSE(overlap(every_third(0), every_third(1)));
  EXPECT_FALSE(overlap(every_third(2), every_third(1)));
  EXPECT_TRUE(overlap(every_third(0), every_third(3)));
}

// Strides that nothing but an attack would have: an answer comes soon, and it is the safe one.
TEST(Overlap, HardStridesAreTakenToOverlap) {
  const std::int64_t n = 1 << 14;
  const TensorView a = view(DType::kBFloat16, 0, {n, n, n, n},
                            {1'000'000'007, 998'244'353, 754'974'721, 167'772'161});
  EXPECT_TRUE(overlaps_itself(a));
}

TEST(Overlap, ExtremeStrides) {
  const std::int64_t huge = std::int64_t{1} << 58;
  const TensorView a = view(DType::kBFloat16, 0, {2, 2, 2}, {huge, -huge, 1});
  const TensorView b = view(DType::kBFloat16, 4, {2, 2}, {huge, 1});
  EXPECT_TRUE(overlaps_itself(a));
  EXPECT_FALSE(overlap(a, b));
}

}  // namespace
}  // namespace parapet::api
