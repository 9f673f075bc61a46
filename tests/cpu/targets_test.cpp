#include <algorithm>

#include "cpu/forward.h"
#include "support/errors.h"

namespace parapet::cpu {
namespace {

TEST(Targets, TheBestOneIsInUse) {
  ASSERT_FALSE(simd_targets().empty());
  EXPECT_EQ(simd_target(), simd_targets().front());
}

TEST(Targets, EachCanBeForced) {
  const std::vector<std::string> targets = simd_targets();
  for (const std::string& target : targets) {
    force_simd_target(target);
    EXPECT_EQ(simd_target(), target);
  }
  force_simd_target("");
  EXPECT_EQ(simd_targets(), targets);
}

TEST(Targets, AnUnknownOneIsRefused) {
  const std::vector<std::string> targets = simd_targets();
  testing::expect_refused({"simd target", "found 'AVX9'", targets.front()},
                          [] { force_simd_target("AVX9"); });
  EXPECT_EQ(simd_targets(), targets);
}

TEST(Targets, RatesArePositive) {
  EXPECT_GT(measure_fma_rate(2, 0.0), 0);
  EXPECT_GT(measure_read_bandwidth(1, 0.0), 0);
}

}  // namespace
}  // namespace parapet::cpu
