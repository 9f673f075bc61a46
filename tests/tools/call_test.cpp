#include "tools/call/call.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "support/errors.h"
#include "tools/oracle/element.h"

namespace parapet::tools {
namespace {

using testing::expect_error;
using testing::expect_refused;

TEST(TensorTest, BytesAreCountedWithoutOverflow) {
  const auto bytes = [](const Shape& shape) { return bytes_of(DType::kFloat32, shape); };
  EXPECT_EQ(bytes({}), 4);
  EXPECT_EQ(bytes({2, 3}), 24);
  EXPECT_EQ(bytes({2, 0, 3}), 0);
  expect_refused({"fewer than 2^63 bytes"}, [&] { bytes({INT64_C(1) << 62}); });
  expect_refused({"fewer than 2^63 bytes"}, [&] { bytes({INT64_C(1) << 40, INT64_C(1) << 40}); });
  expect_error(ErrorCode::kRuntime, {"no memory for a tensor of 4611686018427387904 bytes"},
               [] { Tensor(DType::kFloat32, {INT64_C(1) << 60}); });
}

TEST(TensorTest, OwnsAlignedMemory) {
  const Tensor tensor(DType::kFloat16, {3, 5});
  EXPECT_EQ(tensor.bytes().size(), 30u);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.view().data) % 64, 0u);
  EXPECT_EQ(tensor.shape(), (Shape{3, 5}));
  EXPECT_EQ(tensor.view().strides[0], 5);
  EXPECT_EQ(Tensor(DType::kInt32, {0}).bytes().size(), 0u);
}

TEST(TensorTest, Slices) {
  const Tensor tensor = int32_tensor(std::vector<std::int32_t>{0, 1, 2, 3, 4, 5});
  TensorView view = TensorView::contiguous(tensor.view().data, DType::kInt32, {2, 3});
  view = slice(view, 1, 1, 2);
  EXPECT_EQ(view.shape[1], 2);
  EXPECT_EQ(static_cast<const std::int32_t*>(view.data)[view.strides[0]], 4);
}

TEST(CallTest, ResultShapes) {
  Call call{.q = Tensor(DType::kFloat16, {2, 3, 4, 8}), .v = Tensor(DType::kFloat16, {2, 5, 4, 6})};
  EXPECT_EQ(call.out_shape(), (Shape{2, 3, 4, 6}));
  EXPECT_EQ(call.lse_shape(), (Shape{2, 4, 3}));
  // A rank that does not go with the call is for make_problem to refuse.
  call.cu_seqlens_q = int32_tensor(std::vector<std::int32_t>{0, 3});
  EXPECT_TRUE(call.out_shape().empty());
  call.q = Tensor(DType::kFloat16, {3, 4, 8});
  EXPECT_EQ(call.out_shape(), (Shape{3, 4, 6}));
  EXPECT_EQ(call.lse_shape(), (Shape{4, 3}));
  call.v = Tensor(DType::kFloat16, {});
  EXPECT_TRUE(call.lse_shape().empty());
}

TEST(FillNormal, HasTheMomentsInEveryDType) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    constexpr std::int64_t kCount = 100001;
    const Tensor tensor(dtype, {kCount});
    fill_normal(tensor, 5);
    double sum = 0, squares = 0, beyond = 0;
    for (std::int64_t i = 0; i < kCount; ++i) {
      const double x = oracle::load(tensor.view().data, dtype, i);
      sum += x;
      squares += x * x;
      beyond += std::fabs(x) > 2;
    }
    EXPECT_NEAR(sum / kCount, 0, 0.03);
    EXPECT_NEAR(squares / kCount, 1, 0.05);
    EXPECT_NEAR(beyond / kCount, 0.0455, 0.008);
  }
}

}  // namespace
}  // namespace parapet::tools
