#include "parapet/info.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "parapet/version.h"

namespace parapet {
namespace {

TEST(Info, VersionIsTheHeaders) {
  EXPECT_STREQ(version(), PARAPET_VERSION);
}

TEST(Info, CpuRunsTheTargetInUse) {
  const CpuInfo info = cpu_info();
  EXPECT_GE(info.num_threads, 1);
  EXPECT_EQ(std::ranges::count(info.simd_targets, info.simd_target), 1) << info.simd_target;
}

}  // namespace
}  // namespace parapet
