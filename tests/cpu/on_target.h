#pragma once

#include <gtest/gtest.h>

#include <string>

#include "cpu/forward.h"

namespace parapet::testing {

// Runs a test on every SIMD target that this CPU has, in turn.
class OnTarget : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { cpu::force_simd_target(GetParam()); }
  void TearDown() override { cpu::force_simd_target(""); }
};

#define PARAPET_ON_EVERY_TARGET(suite)                                               \
  INSTANTIATE_TEST_SUITE_P(Targets, suite, ::testing::ValuesIn(cpu::simd_targets()), \
                           [](const auto& target) { return target.param; })

}  // namespace parapet::testing
