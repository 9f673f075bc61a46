// Softcap, sinks, scales and log-sum-exp.

#include <cmath>
#include <limits>

#include "cpu/on_target.h"
#include "support/call.h"
#include "support/check.h"

namespace parapet {
namespace {

using testing::Call;
using testing::CallShape;
using testing::expect_right;
using testing::Tensor;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr DType kFloats[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16};

class Options : public testing::OnTarget {
 protected:
  // Shapes of both paths, with rows that see no key when causal.
  static std::vector<CallShape> shapes() {
    return {{.seqlen_q = 2, .seqlen_k = 70}, {.seqlen_q = 70, .seqlen_k = 50}};
  }
};
PARAPET_ON_EVERY_TARGET(Options);

TEST_P(Options, Scales) {
  for (const CallShape& shape : shapes()) {
    const Call call(shape);
    for (const float scale : {0.0f, 1e-3f, 1.0f, 8.0f, 60.0f, -3.0f}) {
      SCOPED_TRACE(scale);
      expect_right(call.tensors, {.softmax_scale = scale, .causal = true});
    }
  }
}

// Where even a float32's last bit moves a weight out of range, one key still takes it all.
TEST_P(Options, ScoresFarBeyondExactIntegers) {
  for (const CallShape& shape : shapes()) {
    const Call call(shape);
    for (const float scale : {1e7f, 3e9f, -1e10f, 1e20f, 1e30f}) {
      SCOPED_TRACE(scale);
      expect_right(call.tensors, {.softmax_scale = scale, .causal = true});
      expect_right(call.tensors, {.softmax_scale = scale, .softcap = 2e12f, .num_splits = 3});
    }
  }
}

TEST_P(Options, Softcap) {
  for (const CallShape& shape : shapes()) {
    const Call call(shape);
    for (const float softcap : {1e-3f, 0.5f, 15.0f, 50.0f, 1e5f}) {
      for (const float scale : {0.3f, 20.0f, 500.0f}) {
        SCOPED_TRACE(::testing::Message() << "softcap " << softcap << ", scale " << scale);
        expect_right(call.tensors, {.softmax_scale = scale, .causal = true, .softcap = softcap});
      }
    }
  }
}

TEST_P(Options, SinksOfEveryDtype) {
  for (const CallShape& shape : shapes()) {
    Call call(shape);
    for (const DType dtype : kFloats) {
      for (const double size : {1.0, 30.0}) {
        Tensor sink = Tensor::random(dtype, {4}, 3);
        for (std::int64_t head = 0; head < 4; ++head) sink.set(head, sink.get(head) * size);
        call.tensors.learnable_sink = sink;
        expect_right(call.tensors, {.causal = true});
        expect_right(call.tensors, {.causal = true, .softcap = 2.0f, .num_splits = 3});
      }
    }
  }
}

TEST_P(Options, SinksWithAStride) {
  Call call;
  Tensor sink(DType::kFloat32, {4}, {-3});
  sink.fill_random(9);
  call.tensors.learnable_sink = sink;
  expect_right(call.tensors);

  // The oracle goes by the same stride; here are the same sinks side by side.
  Call again;
  Tensor copy(DType::kFloat32, {4});
  for (std::int64_t head = 0; head < 4; ++head) copy.set(head, sink.get(head));
  again.tensors.learnable_sink = copy;
  forward(again.tensors, {});
  for (std::int64_t i = 0; i < call.out.size(); ++i) ASSERT_EQ(again.out.get(i), call.out.get(i));
}

TEST_P(Options, ExtremeSinks) {
  for (const CallShape& shape : shapes()) {
    Call call(shape);
    for (const double value : {-kInfinity, -1e30, -200.0, 200.0, 1e30}) {
      SCOPED_TRACE(value);
      Tensor sink(DType::kFloat32, {4});
      sink.fill(value);
      call.tensors.learnable_sink = sink;
      expect_right(call.tensors, {.causal = true});
    }
  }
}

// All scores 0 and all values 1: the output is the share of the weight that real keys have.
TEST_P(Options, ASinkTakesItsShare) {
  Call call({.batch = 1, .seqlen_q = 1, .seqlen_k = 7, .num_heads = 1, .num_heads_k = 1});
  call.q.fill(0);
  call.v.fill(1);
  Tensor sink(DType::kFloat32, {1});
  sink.set(0, 1.5);
  call.tensors.learnable_sink = sink;
  call.run();
  EXPECT_NEAR(call.out.get(0), 7 / (7 + std::exp(1.5)), 1e-6);
  EXPECT_NEAR(call.lse.get(0), std::log(7 + std::exp(1.5)), 1e-6);
}

TEST_P(Options, ARowWithoutKeysHasTheSinkAsLse) {
  Call call({.batch = 1, .seqlen_q = 60, .seqlen_k = 0});
  Tensor sink = Tensor::random(DType::kFloat32, {4}, 3);
  call.tensors.learnable_sink = sink;
  call.run();
  for (std::int64_t i = 0; i < call.out.size(); ++i) EXPECT_EQ(call.out.get(i), 0);
  for (std::int64_t i = 0; i < call.lse.size(); ++i) {
    EXPECT_NEAR(call.lse.get(i), sink.get(i / 60), 1e-6);
  }
}

TEST_P(Options, ARowWithoutKeysHasLseMinusInfinity) {
  for (const std::int64_t seqlen_q : {6, 60}) {
    Call call({.batch = 1, .seqlen_q = seqlen_q, .seqlen_k = 4});
    call.options.causal = true;
    call.run();
    for (std::int64_t head = 0; head < 4; ++head) {
      for (std::int64_t row = 0; row < seqlen_q - 4; ++row) {
        EXPECT_EQ(call.lse.get(head * seqlen_q + row), -kInfinity);
        for (std::int64_t d = 0; d < 6; ++d) {
          EXPECT_EQ(call.out.get((row * 4 + head) * 6 + d), 0);
        }
      }
    }
    expect_right(call.tensors, call.options);
  }
}

// Scores far apart, rising and falling: the reference has to follow, and what lies far below must
// not disturb.
TEST_P(Options, ScoresFarApart) {
  for (const std::int64_t seqlen_q : {1, 40}) {
    for (const double direction : {1.0, -1.0}) {
      Call call({.batch = 1,
                 .seqlen_q = seqlen_q,
                 .seqlen_k = 700,
                 .num_heads = 1,
                 .num_heads_k = 1,
                 .head_dim = 1});
      call.q.fill(1);
      for (std::int64_t key = 0; key < 700; ++key) {
        call.k.set(key, direction * static_cast<double>(key));
      }
      expect_right(call.tensors, {.softmax_scale = 1.0f});
      expect_right(call.tensors, {.softmax_scale = 1.0f, .causal = true, .num_splits = 4});
    }
  }
}

}  // namespace
}  // namespace parapet
