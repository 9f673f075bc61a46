#include <gtest/gtest.h>

#include "cuda/arch.h"
#include "cuda/kernel_unit.h"
#include "cuda/nvrtc_or_skip.h"
#include "cuda/scoped.h"
#include "parapet/kernels.h"

// Every kernel that comes with the package, compiled for every architecture that it comes for: what
// the machine code says that it needs is what the plan counts on.

namespace parapet::cuda {
namespace {

using parapet::testing::TemporaryDirectory;

constexpr int kRegistersPerSm = 64 * 1024;
constexpr int kRegisterUnit = 256;  // registers go to warps in such pieces

class CommonKernels : public ::testing::TestWithParam<const char*> {};

TEST_P(CommonKernels, FitAsPlanned) {
  PARAPET_NVRTC_OR_SKIP();
  const int shared_bytes_per_sm = Arch::parse(GetParam()).shared_bytes_per_sm();
  const TemporaryDirectory directory;
  const auto reports = precompile({.archs = {GetParam()}, .directory = directory.path()});
  EXPECT_GE(reports.size(), 20u);
  for (const KernelReport& report : reports) {
    SCOPED_TRACE(report.kernel);
    const kernels::ForwardConfig config = parse_kernel_name(report.kernel);
    EXPECT_FALSE(report.ptx);
    EXPECT_EQ(report.threads, kernels::forward_threads(config));
    // sm_80 is two registers short for one kernel: it keeps a tile range in local memory, outside
    // the loop over chunks.
    const bool is_short_of_registers =
        report.arch == "sm_80" && config.head_dim == 256 && !config.right_edge;
    EXPECT_LE(report.local_bytes, is_short_of_registers ? 8 : 0) << "registers spill";

    const int blocks = config.shape.blocks_per_sm;
    EXPECT_LE(blocks * (report.shared_bytes + kernels::kReservedSharedBytes), shared_bytes_per_sm);
    const int warp_registers =
        static_cast<int>(plan::round_up(report.registers * 32, kRegisterUnit));
    EXPECT_LE(blocks * report.threads / 32 * warp_registers, kRegistersPerSm);
  }
}

INSTANTIATE_TEST_SUITE_P(Archs, CommonKernels,
                         ::testing::Values("sm_80", "sm_89", "sm_90a", "sm_120"),
                         [](const auto& test) { return std::string(test.param); });

TEST(CommonKernelNames, AreKeys) {
  for (const std::string& name : common_kernels("sm_90a")) {
    EXPECT_EQ(kernel_name(parse_kernel_name(name)), name);
  }
}

TEST(CommonKernelNames, AreThoseThatTheGpuHasRoomFor) {
  // Some shapes need more shared memory than others have.
  const auto count = [](const char* arch) { return common_kernels(arch).size(); };
  EXPECT_EQ(count("sm_80"), count("sm_89"));
  EXPECT_EQ(count("sm_89"), count("sm_120"));
  EXPECT_LT(count("sm_89"), count("sm_90a"));
}

}  // namespace
}  // namespace parapet::cuda
