// Keys that a row does not see never change its result, whatever their keys and values hold; keys
// that it sees do what the definition says, also when they are infinite or NaN.

#include <cmath>
#include <cstring>
#include <limits>

#include "cpu/on_target.h"
#include "support/call.h"
#include "support/check.h"

namespace parapet {
namespace {

using testing::Call;
using testing::CallShape;
using testing::expect_right;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr DType kFloats[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16};

class HiddenKeys : public testing::OnTarget {
 protected:
  static constexpr std::int64_t kDim = 8;

  static CallShape shape(DType dtype, std::int64_t seqlen_q, std::int64_t seqlen_k) {
    return {.dtype = dtype,
            .batch = 1,
            .seqlen_q = seqlen_q,
            .seqlen_k = seqlen_k,
            .num_heads = 2,
            .num_heads_k = 1,
            .head_dim = kDim,
            .head_dim_v = kDim};
  }
};
PARAPET_ON_EVERY_TARGET(HiddenKeys);

// One poisoned key, at every place of a short sequence. Rows that see it are poisoned, the others
// are as if it were not there.
TEST_P(HiddenKeys, OnePoisonedKey) {
  for (const std::int64_t seqlen_q : {4, 25}) {
    for (const double poison : {double{NAN}, kInfinity, -kInfinity}) {
      for (std::int64_t key = 0; key < 25; key += 3) {
        for (const bool in_values : {false, true}) {
          SCOPED_TRACE(::testing::Message() << "Sq " << seqlen_q << ", key " << key << ", poison "
                                            << poison << ", in values " << in_values);
          Call call(shape(DType::kFloat32, seqlen_q, 25));
          (in_values ? call.v : call.k).set(key * kDim + 2, poison);
          expect_right(call.tensors, {.causal = true});
          expect_right(call.tensors, {.window_left = 3, .window_right = 2});
        }
      }
    }
  }
}

TEST_P(HiddenKeys, EveryDtypeAndPath) {
  for (const DType dtype : kFloats) {
    for (const std::int64_t seqlen_q : {1, 2, 5, 70}) {
      Call call(shape(dtype, seqlen_q, 300));
      call.v.set(299 * kDim, NAN);
      call.v.set(150 * kDim + 1, kInfinity);
      call.v.set(150 * kDim + 2, -kInfinity);
      call.k.set(290 * kDim, NAN);
      expect_right(call.tensors, {.causal = true});
      expect_right(call.tensors, {.causal = true, .window_left = 20});
      expect_right(call.tensors, {.causal = true, .num_splits = 3});
    }
  }
}

// Everything after the diagonal is poisoned: no row may notice.
TEST_P(HiddenKeys, TheFutureIsPoisoned) {
  for (const std::int64_t seqlen_q : {3, 60}) {
    Call call(shape(DType::kFloat32, seqlen_q, 200));
    call.options = {.causal = true, .window_left = 50};
    const Call clean(shape(DType::kFloat32, seqlen_q, 200));
    forward(clean.tensors, call.options);
    // The last row alone sees the last key; leave its output out of the comparison.
    for (std::int64_t d = 0; d < kDim; ++d) {
      call.k.set(199 * kDim + d, NAN);
      call.v.set(199 * kDim + d, kInfinity);
      for (std::int64_t key = 0; key < 200 - seqlen_q - 50; ++key) {
        call.k.set(key * kDim + d, kInfinity);
        call.v.set(key * kDim + d, NAN);
      }
    }
    call.run();
    for (std::int64_t i = 0; i < (seqlen_q - 1) * 2 * kDim; ++i) {
      EXPECT_EQ(call.out.get(i), clean.out.get(i)) << i;
    }
  }
}

// A visible infinity counts however small its weight is.
TEST_P(HiddenKeys, AVisibleInfinityOfTinyWeight) {
  for (const std::int64_t seqlen_q : {1, 30}) {
    Call call({.batch = 1,
               .seqlen_q = seqlen_q,
               .seqlen_k = 200,
               .num_heads = 1,
               .num_heads_k = 1,
               .head_dim = 1,
               .head_dim_v = 8});
    call.q.fill(1);
    call.k.fill(0);
    for (std::int64_t key = 100; key < 200; ++key) call.k.set(key, 300);
    call.v.set(50 * 8, kInfinity);
    call.v.set(51 * 8 + 1, -kInfinity);
    call.v.set(52 * 8 + 2, NAN);
    expect_right(call.tensors, {.softmax_scale = 1.0f});
    expect_right(call.tensors, {.softmax_scale = 1.0f, .num_splits = 2});
  }
}

TEST_P(HiddenKeys, NotANumberOfAnyKindStaysOne) {
  // Sign and payload of a NaN must not matter.
  const std::uint32_t kinds[] = {0x7FC00000u, 0xFFC00000u, 0x7F800001u, 0xFFFFFFFFu, 0x7FC00001u};
  for (const std::int64_t seqlen_q : {1, 30}) {
    for (const std::uint32_t bits : kinds) {
      Call call(shape(DType::kFloat32, seqlen_q, 40));
      float value = 0;
      std::memcpy(&value, &bits, sizeof value);
      static_cast<float*>(call.tensors.k.data)[5 * kDim] = value;
      call.run();
      for (std::int64_t i = 0; i < call.out.size(); ++i) EXPECT_TRUE(std::isnan(call.out.get(i)));
      for (std::int64_t i = 0; i < call.lse.size(); ++i) EXPECT_TRUE(std::isnan(call.lse.get(i)));
    }
  }
}

TEST_P(HiddenKeys, InfiniteScores) {
  for (const std::int64_t seqlen_q : {1, 30}) {
    for (const double sign : {1.0, -1.0}) {
      Call call(shape(DType::kFloat32, seqlen_q, 40));
      for (std::int64_t i = 0; i < call.q.size(); ++i) call.q.set(i, 1);
      call.k.set(7 * kDim, sign * kInfinity);
      expect_right(call.tensors);
      expect_right(call.tensors, {.softcap = 3.0f});
    }
  }
}

}  // namespace
}  // namespace parapet
