#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>

#include "api/problem.h"
#include "support/call.h"
#include "support/errors.h"

namespace parapet {
namespace {

using testing::Call;
using testing::expect_refused;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

template <class Change>
void refused(std::initializer_list<std::string> parts, const Change& change) {
  Call call;
  change(call.options);
  expect_refused(parts, [&] { call.run(); });
}

template <class Change>
api::Problem problem_of(const Change& change) {
  Call call;
  change(call.options);
  return api::make_problem(call.tensors, call.options);
}

TEST(CheckOptions, FactorsAreOfUsableSize) {
  const auto refuse_scale = [](float scale, const std::string& found) {
    refused({"softmax_scale: expected a finite number, at most 1e30 in size, found " + found},
            [&](auto& o) { o.softmax_scale = scale; });
  };
  refuse_scale(kInfinity, "inf");
  refuse_scale(-kInfinity, "-inf");
  refuse_scale(std::nanf(""), "nan");
  refuse_scale(-2e30f, "-2e+30");
  const auto refuse_softcap = [](float softcap, const std::string& found) {
    refused({"softcap: expected a finite number of at least 0: 0 (off) or 1e-30 to 1e30, found " +
             found},
            [&](auto& o) { o.softcap = softcap; });
  };
  refuse_softcap(kInfinity, "inf");
  refuse_softcap(std::nanf(""), "nan");
  refuse_softcap(-1, "-1");
  refuse_softcap(3e38f, "3e+38");
  refuse_softcap(1e-40f, "1e-40");
}

TEST(CheckOptions, Windows) {
  refused({"window_left: expected at least -1 (unlimited), found -2"},
          [](auto& o) { o.window_left = -2; });
  refused({"window_right: expected at least -1 (unlimited), found -9223372036854775808"},
          [](auto& o) { o.window_right = INT64_MIN; });
}

TEST(CheckOptions, Counts) {
  refused({"num_splits: expected 0 to 256, found -1"}, [](auto& o) { o.num_splits = -1; });
  refused({"num_splits: expected 0 to 256, found 257"}, [](auto& o) { o.num_splits = 257; });
  refused({"num_threads: expected 0 to 1024, found -1"}, [](auto& o) { o.num_threads = -1; });
  refused({"num_threads: expected 0 to 1024, found 2147483647"},
          [](auto& o) { o.num_threads = INT32_MAX; });
}

TEST(Options, Defaults) {
  const api::Problem problem = problem_of([](const auto&) {});
  EXPECT_EQ(problem.softmax_scale, 1 / std::sqrt(8.0f));
  EXPECT_EQ(problem.softcap, 0);
  EXPECT_EQ(problem.band.left, plan::kUnlimited);
  EXPECT_EQ(problem.band.right, plan::kUnlimited);
  EXPECT_EQ(problem.num_splits, 1);
  EXPECT_EQ(problem.num_threads, 0);
}

TEST(Options, AnyFiniteScale) {
  EXPECT_EQ(problem_of([](auto& o) { o.softmax_scale = -3; }).softmax_scale, -3);
  EXPECT_EQ(problem_of([](auto& o) { o.softmax_scale = 0; }).softmax_scale, 0);
}

TEST(Options, BandOfWindowsAndCausal) {
  const auto expect = [](std::int64_t left, std::int64_t right, const auto& change) {
    const api::Problem problem = problem_of(change);
    EXPECT_EQ(problem.band.left, left);
    EXPECT_EQ(problem.band.right, right);
  };
  expect(plan::kUnlimited, 0, [](auto& o) { o.causal = true; });
  expect(3, 4, [](auto& o) { o.window_left = 3, o.window_right = 4; });
  expect(plan::kUnlimited, 0, [](auto& o) { o.window_left = -1, o.window_right = 0; });
  expect(0, plan::kUnlimited, [](auto& o) { o.window_left = 0, o.window_right = -1; });
  // Causal means that nothing to the right is seen, whatever the window says.
  expect(2, 0, [](auto& o) { o.causal = true, o.window_left = 2, o.window_right = 7; });
  expect(plan::kUnlimited, plan::kUnlimited,
         [](auto& o) { o.window_left = INT64_MAX, o.window_right = INT64_MAX; });
}

}  // namespace
}  // namespace parapet
