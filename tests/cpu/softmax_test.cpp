// The vector functions of the softmax, on every target.

#include "cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/softmax_test.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "cpu/on_target.h"
#include "cpu/softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace parapet::cpu::HWY_NAMESPACE {

// Applies a function to one number, in a vector of others.
float power_of_two_of(float x) {
  return hn::GetLane(
      power_of_two(df, hn::IfThenElse(hn::FirstN(df, 1), hn::Set(df, x), hn::Set(df, 1.0f))));
}
float tanh_of(float x) {
  return hn::GetLane(tanh(hn::Set(df, x)));
}

}  // namespace parapet::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace parapet::cpu {

HWY_EXPORT(power_of_two_of);
HWY_EXPORT(tanh_of);
float call_power_of_two(float x) {
  return HWY_DYNAMIC_DISPATCH(power_of_two_of)(x);
}
float call_tanh(float x) {
  return HWY_DYNAMIC_DISPATCH(tanh_of)(x);
}

namespace {

class Softmax : public testing::OnTarget {};
PARAPET_ON_EVERY_TARGET(Softmax);

// Largest relative error over [low, high].
double worst_error(double low, double high, float (*function)(float), double (*exact)(double)) {
  constexpr int kSteps = 200'000;
  double worst = 0;
  for (int i = 0; i <= kSteps; ++i) {
    const auto x = static_cast<float>(low + (high - low) * i / kSteps);
    const double expected = exact(double{x});
    if (expected == 0) continue;
    worst = std::max(worst, std::fabs(double{function(x)} / expected - 1));
  }
  return worst;
}

TEST_P(Softmax, PowerOfTwo) {
  const auto exact = [](double x) { return std::exp2(x); };
  EXPECT_LT(worst_error(-1, 1, call_power_of_two, exact), 2.5e-7);
  EXPECT_LT(worst_error(-125.9, 126, call_power_of_two, exact), 2.5e-7);
}

TEST_P(Softmax, PowerOfTwoAtTheEnds) {
  for (const float x : {-127.0f, -200.0f, -1e30f, -INFINITY}) EXPECT_EQ(call_power_of_two(x), 0);
  for (const float x : {NAN, -NAN}) EXPECT_TRUE(std::isnan(call_power_of_two(x)));
}

TEST_P(Softmax, Tanh) {
  const auto exact = [](double x) { return std::tanh(x); };
  EXPECT_LT(worst_error(-12, 12, call_tanh, exact), 5e-7);
  EXPECT_LT(worst_error(-1e-3, 1e-3, call_tanh, exact), 5e-7);
}

TEST_P(Softmax, TanhAtTheEnds) {
  for (const float x : {20.0f, 1e30f, INFINITY}) {
    EXPECT_FLOAT_EQ(call_tanh(x), 1);
    EXPECT_FLOAT_EQ(call_tanh(-x), -1);
  }
  for (const float x : {NAN, -NAN}) EXPECT_TRUE(std::isnan(call_tanh(x)));
}

}  // namespace
}  // namespace parapet::cpu
#endif
