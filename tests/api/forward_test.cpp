#include <gtest/gtest.h>

#include "parapet/parapet.h"
#include "support/tensor.h"

namespace parapet {
namespace {

using testing::Tensor;

TEST(Forward, PackedCallGivesEachSegmentItsOwnAverage) {
  const Tensor q = Tensor::random(DType::kFloat32, {7, 2, 8}, 1);
  const Tensor k = Tensor::random(DType::kFloat32, {6, 1, 8}, 2);
  Tensor v(DType::kFloat32, {6, 1, 4});
  for (std::int64_t i = 0; i < v.size(); ++i) v.set(i, i / 4 < 4 ? 1 : 2);
  const Tensor out(DType::kFloat32, {7, 2, 4});
  const Tensor cu_seqlens_q = Tensor::int32({0, 2, 2, 6});
  const Tensor cu_seqlens_k = Tensor::int32({0, 4, 4, 6});
  ForwardTensors tensors;
  tensors.q = q, tensors.k = k, tensors.v = v, tensors.out = out;
  tensors.cu_seqlens_q = cu_seqlens_q, tensors.cu_seqlens_k = cu_seqlens_k;
  forward(tensors);
  for (std::int64_t i = 0; i < out.size(); ++i) {
    const std::int64_t row = i / 8;
    EXPECT_NEAR(out.get(i), row < 2 ? 1 : row < 6 ? 2 : 0, 1e-6) << "row " << row;
  }
}

}  // namespace
}  // namespace parapet
