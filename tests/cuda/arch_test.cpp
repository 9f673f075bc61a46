#include "cuda/arch.h"

#include <gtest/gtest.h>

#include "parapet/error.h"

namespace parapet::cuda {
namespace {

TEST(Arch, NamesGoBothWays) {
  for (const char* name : {"sm_80", "sm_86", "sm_90a", "sm_100f", "sm_120", "sm_121a"}) {
    EXPECT_EQ(Arch::parse(name).name(), name);
  }
  EXPECT_EQ(Arch::parse("sm_121").major, 12);
  EXPECT_EQ(Arch::parse("sm_121").minor, 1);
}

TEST(Arch, RefusesOtherNames) {
  for (const char* name : {"", "sm_", "80", "sm_8", "sm_-80", "sm_1000", "sm_90b", "sm_90aa",
                           "sm_ 80", "compute_80", "sm_80,sm_90"}) {
    try {
      Arch::parse(name);
      ADD_FAILURE() << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_NE(std::string(error.what()).find(name), std::string::npos) << error.what();
    }
  }
}

TEST(Arch, OnlyHopperIsCompiledForItsOwnInstructions) {
  EXPECT_EQ(Arch::of_capability(9, 0).name(), "sm_90a");
  EXPECT_EQ(Arch::of_capability(8, 9).name(), "sm_89");
  EXPECT_EQ(Arch::of_capability(12, 0).name(), "sm_120");
}

TEST(Arch, KnowsTheSharedMemoryOfAMultiprocessor) {
  const auto kilobytes = [](const char* name) {
    return Arch::parse(name).shared_bytes_per_sm() / 1024;
  };
  EXPECT_EQ(kilobytes("sm_80"), 164);
  EXPECT_EQ(kilobytes("sm_86"), 100);
  EXPECT_EQ(kilobytes("sm_87"), 164);
  EXPECT_EQ(kilobytes("sm_89"), 100);
  EXPECT_EQ(kilobytes("sm_90a"), 228);
  EXPECT_EQ(kilobytes("sm_100"), 228);
  EXPECT_EQ(kilobytes("sm_120"), 100);
  EXPECT_EQ(kilobytes("sm_990"), 100);
}

}  // namespace
}  // namespace parapet::cuda
