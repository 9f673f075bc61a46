// Elements of two bytes: every one of them survives a call that must return it unchanged, and what
// lies between two is rounded to nearest even.

#include <cmath>

#include "cpu/on_target.h"
#include "support/call.h"
#include "tools/oracle/element.h"

namespace parapet {
namespace {

using testing::Call;

class Conversions : public testing::OnTarget {
 protected:
  static constexpr std::int64_t kDim = 61;  // whole vectors and a rest

  // Calls `expect` for every bit pattern, `kDim` in a row, with the output of a call whose values
  // they are.
  template <class Fill, class Expect>
  static void for_all_elements(DType dtype, std::int64_t seqlen_q, std::int64_t seqlen_k,
                               const Fill& fill, const Expect& expect) {
    Call call({.dtype = dtype,
               .batch = 1,
               .seqlen_q = seqlen_q,
               .seqlen_k = seqlen_k,
               .num_heads = 1,
               .num_heads_k = 1,
               .head_dim = 1,
               .head_dim_v = kDim});
    call.q.fill(0);
    for (std::int64_t first = 0; first + kDim <= 0x10000; first += kDim) {
      for (std::int64_t i = 0; i < seqlen_k * kDim; ++i) {
        const std::int64_t bits = fill(first + i % kDim, i / kDim);
        static_cast<std::uint16_t*>(call.tensors.v.data)[i] = static_cast<std::uint16_t>(bits);
      }
      call.run();
      for (std::int64_t i = 0; i < kDim; ++i) expect(first + i, call.out.get(i));
    }
  }

  static double value_of(DType dtype, std::int64_t bits) {
    const auto element = static_cast<std::uint16_t>(bits);
    return oracle::load(&element, dtype, 0);
  }
};
PARAPET_ON_EVERY_TARGET(Conversions);

TEST_P(Conversions, EveryElementSurvives) {
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    for (const std::int64_t seqlen_q : {1, 9}) {
      for_all_elements(
          dtype, seqlen_q, 1, [](std::int64_t bits, std::int64_t) { return bits; },
          [&](std::int64_t bits, double found) {
            const double expected = value_of(dtype, bits);
            EXPECT_TRUE(std::isnan(expected) ? std::isnan(found) : found == expected)
                << name_of(dtype) << " " << bits << ": found " << found << ", expected "
                << expected;
          });
    }
  }
}

// A quarter of the way from an element to the next one, and three quarters.
TEST_P(Conversions, RoundsToNearest) {
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    // The sum of the four values, which precedes the division by 4, has to stay finite in float32.
    const std::int64_t limit = dtype == DType::kFloat16 ? 0x7C00 : 0x7F80 - 2 * 0x80;
    const auto finite = [&](std::int64_t bits) { return (bits & 0x7FFF) + 1 < limit; };
    for (const std::int64_t nearer : {0, 1}) {
      for_all_elements(
          dtype, 1, 4,
          [&](std::int64_t bits, std::int64_t key) {
            if (!finite(bits)) return std::int64_t{0};
            return bits + (key == 0 ? 1 - nearer : nearer);
          },
          [&](std::int64_t bits, double found) {
            if (!finite(bits)) return;
            EXPECT_EQ(found, value_of(dtype, bits + nearer)) << name_of(dtype) << " " << bits;
          });
    }
  }
}

}  // namespace
}  // namespace parapet
