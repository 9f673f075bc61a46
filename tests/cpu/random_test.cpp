// Calls with random shapes, layouts and options, from fixed seeds. A failing seed reproduces its
// call.

#include <cmath>
#include <random>

#include "cpu/on_target.h"
#include "support/call.h"
#include "support/check.h"

namespace parapet {
namespace {

using testing::Call;
using testing::CallShape;
using testing::expect_right;
using testing::Tensor;

class RandomCalls : public testing::OnTarget {};
PARAPET_ON_EVERY_TARGET(RandomCalls);

class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}

  std::int64_t between(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(engine_() % static_cast<std::uint64_t>(high - low + 1));
  }
  bool chance(int one_in) { return between(1, one_in) == 1; }
  template <class T>
  T one_of(std::initializer_list<T> values) {
    return values.begin()[between(0, static_cast<std::int64_t>(values.size()) - 1)];
  }
  std::int32_t length() {
    return static_cast<std::int32_t>(between(0, one_of<std::int64_t>({0, 8, 8, 50, 50, 150, 600})));
  }

 private:
  std::mt19937_64 engine_;
};

TEST_P(RandomCalls, AreRight) {
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    Random random(seed);
    CallShape shape;
    shape.dtype = random.one_of({DType::kFloat32, DType::kFloat16, DType::kBFloat16});
    shape.batch = random.between(1, 3);
    shape.num_heads_k = random.between(1, 3);
    shape.num_heads = shape.num_heads_k * random.between(1, 5);
    shape.head_dim = random.one_of<std::int64_t>({1, 3, 8, 16, 20, 32, 40, 64, 72});
    shape.head_dim_v =
        random.chance(2) ? shape.head_dim : random.one_of<std::int64_t>({1, 6, 16, 32, 50, 64});
    shape.seqlen_q = random.length();
    shape.seqlen_k = random.length();
    for (const bool queries : {true, false}) {
      if (random.chance(2)) continue;
      for (std::int64_t i = 0; i < shape.batch; ++i) {
        (queries ? shape.packed_q : shape.packed_k).push_back(random.length());
      }
    }
    Call call(shape, seed);

    ForwardOptions options;
    if (random.chance(2)) options.softmax_scale = random.one_of({0.2f, 3.0f, -1.0f, 30.0f});
    options.causal = random.chance(3);
    if (random.chance(3)) options.window_left = random.between(0, 100);
    if (!options.causal && random.chance(3)) options.window_right = random.between(0, 60);
    if (random.chance(3)) options.softcap = random.one_of({0.3f, 5.0f, 30.0f});
    options.num_splits = random.one_of({0, 1, 1, 2, 5});
    options.num_threads = static_cast<int>(random.between(0, 4));

    const Tensor sink =
        Tensor::random(random.one_of({DType::kFloat32, DType::kFloat16, DType::kBFloat16}),
                       {shape.num_heads}, seed);
    if (random.chance(3)) call.tensors.learnable_sink = sink;
    std::vector<std::int32_t> used[2];
    for (std::int64_t i = 0; i < shape.batch; ++i) {
      for (const bool queries : {true, false}) {
        const std::vector<std::int32_t>& packed = queries ? shape.packed_q : shape.packed_k;
        const std::int64_t length =
            packed.empty() ? (queries ? shape.seqlen_q : shape.seqlen_k) : packed[i];
        used[queries].push_back(static_cast<std::int32_t>(random.between(0, length)));
      }
    }
    const Tensor used_q = Tensor::int32(used[true]), used_k = Tensor::int32(used[false]);
    if (random.chance(4)) call.tensors.seqused_q = used_q;
    if (random.chance(4)) call.tensors.seqused_k = used_k;
    if (random.chance(4)) call.tensors.lse.reset();

    // Now and then a key or value that is not finite.
    if (random.chance(4)) {
      for (Tensor* tensor : {&call.k, &call.v}) {
        if (tensor->size() == 0) continue;
        tensor->set(random.between(0, tensor->size() - 1),
                    random.one_of({double{NAN}, double{INFINITY}, -double{INFINITY}}));
      }
    }
    expect_right(call.tensors, options);
  }
}

}  // namespace
}  // namespace parapet
