#include "parapet/tensor.h"

#include <gtest/gtest.h>

#include <array>

#include "support/errors.h"

namespace parapet {
namespace {

using testing::expect_refused;

TEST(TensorView, ContiguousIsCOrder) {
  int data = 0;
  const TensorView view = TensorView::contiguous(&data, DType::kInt32, {2, 3, 5});
  EXPECT_EQ(view.data, &data);
  EXPECT_EQ(view.rank, 3);
  EXPECT_EQ(view.shape, (std::array<std::int64_t, 4>{2, 3, 5, 0}));
  EXPECT_EQ(view.strides, (std::array<std::int64_t, 4>{15, 5, 1, 0}));
  EXPECT_EQ(view.num_elements(), 30);
  EXPECT_EQ(view.device, Device{});
}

TEST(TensorView, ContiguousAcceptsScalarsAndEmptyTensors) {
  EXPECT_EQ(TensorView::contiguous(nullptr, DType::kFloat16, {}).num_elements(), 1);
  const std::int64_t huge = std::int64_t{1} << 40;
  EXPECT_EQ(TensorView::contiguous(nullptr, DType::kFloat16, {8, 0, huge}).num_elements(), 0);
}

TEST(TensorView, ContiguousRefusesWhatItCannotHold) {
  const auto make = [](std::initializer_list<std::int64_t> shape) {
    return [shape] { TensorView::contiguous(nullptr, DType::kFloat32, shape); };
  };
  const std::int64_t huge = std::int64_t{1} << 40;
  expect_refused({"shape: expected at most 4 dimensions, found 5"}, make({1, 1, 1, 1, 1}));
  expect_refused({"shape[1]: expected at least 0, found -3"}, make({2, -3}));
  expect_refused({"shape: expected fewer than 2^63 elements"}, make({huge, huge}));
}

TEST(DType, SizesAndNames) {
  EXPECT_EQ(size_of(DType::kFloat32), 4);
  EXPECT_EQ(size_of(DType::kFloat16), 2);
  EXPECT_EQ(size_of(DType::kBFloat16), 2);
  EXPECT_EQ(size_of(DType::kInt32), 4);
  EXPECT_EQ(name_of(DType::kFloat32), "float32");
  EXPECT_EQ(name_of(DType::kFloat16), "float16");
  EXPECT_EQ(name_of(DType::kBFloat16), "bfloat16");
  EXPECT_EQ(name_of(DType::kInt32), "int32");
  EXPECT_EQ(name_of(static_cast<DType>(99)), "unknown");
}

}  // namespace
}  // namespace parapet
