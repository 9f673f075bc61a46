#include "tools/oracle/oracle.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "support/tensor.h"

namespace parapet::oracle {
namespace {

using parapet::testing::Tensor;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// One batch entry, one head, head dim 1: everything can be worked out by hand.
struct Call {
  Call(std::vector<double> q_values, std::vector<double> k_values, std::vector<double> v_values)
      : q(DType::kFloat32, {1, static_cast<int64>(q_values.size()), 1, 1}),
        k(DType::kFloat32, {1, static_cast<int64>(k_values.size()), 1, 1}),
        v(k.view().dtype, {1, static_cast<int64>(v_values.size()), 1, 1}),
        out(q.view().dtype, {1, static_cast<int64>(q_values.size()), 1, 1}) {
    for (int64 i = 0; i < q.size(); ++i) q.set(i, q_values[i]);
    for (int64 i = 0; i < k.size(); ++i) k.set(i, k_values[i]);
    for (int64 i = 0; i < v.size(); ++i) v.set(i, v_values[i]);
    tensors.q = q, tensors.k = k, tensors.v = v, tensors.out = out;
  }

  Row row(int64 index) const {
    return forward_row(api::make_problem(tensors, options), 0, 0, index);
  }

  Tensor q, k, v, out;
  ForwardTensors tensors;
  ForwardOptions options;
};

TEST(Oracle, WeighsValuesByTheExponentialsOfScores) {
  Call call({1}, {0, std::log(3.0f)}, {10, 20});
  EXPECT_NEAR(call.row(0).out[0], (1 * 10 + 3 * 20) / 4.0, 1e-5);
  EXPECT_NEAR(call.row(0).lse, std::log(4.0), 1e-7);
}

TEST(Oracle, ScaleThenSoftcap) {
  Call call({2}, {3}, {1});
  call.options.softmax_scale = 0.5f;
  EXPECT_NEAR(call.row(0).lse, 3, 1e-12);
  call.options.softcap = 4;
  EXPECT_NEAR(call.row(0).lse, 4 * std::tanh(0.75), 1e-12);
}

TEST(Oracle, CausalIsAlignedToTheLastKey) {
  Call call({0, 0}, {0, 0, 0}, {3, 6, 12});
  call.options.causal = true;
  EXPECT_NEAR(call.row(0).out[0], 4.5, 1e-12);
  EXPECT_NEAR(call.row(1).out[0], 7, 1e-12);
}

TEST(Oracle, WindowEndsAreIncluded) {
  Call call({0, 0, 0}, {0, 0, 0}, {1, 10, 100});
  call.options.window_left = 1;
  call.options.window_right = 0;
  EXPECT_NEAR(call.row(0).out[0], 1, 1e-12);
  EXPECT_NEAR(call.row(1).out[0], 5.5, 1e-12);
  EXPECT_NEAR(call.row(2).out[0], 55, 1e-12);
}

TEST(Oracle, RowWithoutKeysIsZero) {
  Call call({1, 1, 1}, {1}, {5});
  call.options.causal = true;
  for (const int64 row : {0, 1}) {
    EXPECT_EQ(call.row(row).out[0], 0);
    EXPECT_EQ(call.row(row).lse, -kInfinity);
  }
  EXPECT_EQ(call.row(2).out[0], 5);
}

TEST(Oracle, SinkIsALogitWithoutAValue) {
  Call call({0, 0}, {0}, {8});
  Tensor sink(DType::kFloat32, {1});
  sink.set(0, std::log(3.0));
  call.tensors.learnable_sink = sink;
  EXPECT_NEAR(call.row(0).out[0], 2, 1e-6);
  EXPECT_NEAR(call.row(0).lse, std::log(4.0), 1e-6);
  call.options.causal = true;
  EXPECT_EQ(call.row(0).out[0], 0);
  EXPECT_NEAR(call.row(0).lse, std::log(3.0), 1e-6);
}

TEST(Oracle, UnseenKeysDoNotMatter) {
  Call call({1}, {2, std::nan("")}, {5, kInfinity});
  const Tensor used = Tensor::int32({1});
  call.tensors.seqused_k = used;
  EXPECT_EQ(call.row(0).out[0], 5);
  EXPECT_EQ(call.row(0).lse, 2);
}

TEST(Oracle, VisibleNanStays) {
  for (const bool nan_first : {true, false}) {
    Call call({1}, {nan_first ? std::nan("") : 2, nan_first ? 2 : std::nan("")}, {5, 6});
    EXPECT_TRUE(std::isnan(call.row(0).out[0]));
    EXPECT_TRUE(std::isnan(call.row(0).lse));
  }
}

TEST(Oracle, ClampsLengths) {
  const Tensor q = Tensor::random(DType::kFloat32, {5, 1, 1}, 1);
  const Tensor out(DType::kFloat32, {5, 1, 1});
  const Tensor cu_seqlens = Tensor::int32({-7, 3, 2, 99});
  const Tensor used = Tensor::int32({2, 2, -1});
  const api::Problem problem = api::make_problem({.q = q,
                                                  .k = q,
                                                  .v = q,
                                                  .out = out,
                                                  .cu_seqlens_q = cu_seqlens,
                                                  .cu_seqlens_k = cu_seqlens,
                                                  .seqused_k = used},
                                                 {.check_metadata = false});
  // The last segment of queries begins after the first one, whose rows it would share.
  const auto expect = [](Rows rows, int64 begin, int64 length) {
    EXPECT_EQ(rows.begin, begin);
    EXPECT_EQ(rows.length, length);
  };
  expect(query_rows(problem, 0), 0, 3);
  expect(query_rows(problem, 1), 3, 0);
  expect(query_rows(problem, 2), 3, 2);
  expect(key_rows(problem, 0), 0, 2);
  expect(key_rows(problem, 1), 3, 0);
  expect(key_rows(problem, 2), 2, 0);
}

TEST(Oracle, RoundedRowIsNearAndRounded) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    const Tensor q = Tensor::random(dtype, {1, 3, 4, 16}, 1);
    const Tensor k = Tensor::random(dtype, {1, 9, 2, 16}, 2);
    const Tensor v = Tensor::random(dtype, {1, 9, 2, 8}, 3);
    const Tensor out(dtype, {1, 3, 4, 8});
    ForwardTensors tensors;
    tensors.q = q, tensors.k = k, tensors.v = v, tensors.out = out;
    const api::Problem problem = api::make_problem(tensors, {});
    const double epsilon = dtype == DType::kFloat32   ? 0x1p-23
                           : dtype == DType::kFloat16 ? 0x1p-10
                                                      : 0x1p-7;
    double worst = 0;
    for (int64 head = 0; head < 4; ++head) {
      const Row exact = forward_row(problem, 0, head, 2);
      const Row rounded = rounded_row(problem, 0, head, 2);
      EXPECT_LE(exact.scale, 1);
      for (std::size_t d = 0; d < 8; ++d) {
        EXPECT_LE(std::fabs(exact.out[d]), exact.scale);
        worst = std::max(worst, std::fabs(rounded.out[d] - exact.out[d]));
      }
    }
    EXPECT_LT(worst, 4 * epsilon);
    EXPECT_GT(worst, epsilon / 100);
  }
}

}  // namespace
}  // namespace parapet::oracle
