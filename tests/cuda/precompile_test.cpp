#include <gtest/gtest.h>

#include <filesystem>

#include "cuda/kernel_cache.h"
#include "cuda/kernel_store.h"
#include "cuda/kernel_unit.h"
#include "cuda/nvrtc_or_skip.h"
#include "cuda/scoped.h"
#include "parapet/error.h"
#include "parapet/kernels.h"

namespace parapet::cuda {
namespace {

using parapet::testing::ScopedEnvironment;
using parapet::testing::TemporaryDirectory;

constexpr const char* kKernel = "forward-bf16-d64";

std::string message_of(const PrecompileOptions& options) {
  try {
    precompile(options);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(Precompile, ServesCallsWithoutACompiler) {
  PARAPET_NVRTC_OR_SKIP();
  const TemporaryDirectory directory;
  const ScopedEnvironment cache("PARAPET_CACHE_DIR", directory.path() / "cache");
  int reported = 0;
  const auto reports = precompile({.archs = {"sm_80", "sm_120"},
                                   .kernels = {kKernel},
                                   .directory = directory.path() / "new",
                                   .num_threads = 2,
                                   .on_kernel = [&](const KernelReport&) { ++reported; }});
  ASSERT_EQ(reports.size(), 2u);
  EXPECT_EQ(reported, 2);
  for (const KernelReport& report : reports) {
    EXPECT_EQ(report.kernel, kKernel);
    EXPECT_FALSE(report.ptx);
    EXPECT_GT(report.registers, 0);
    EXPECT_EQ(report.local_bytes, 0) << "registers spill on " << report.arch;
    EXPECT_GT(report.shared_bytes, 0);
    EXPECT_LE(report.shared_bytes, kernels::kSharedBytesPerSm - kernels::kReservedSharedBytes);
    EXPECT_GT(report.image_bytes, 1000);
    EXPECT_GT(report.seconds, 0.0);
  }
  EXPECT_EQ(reports[0].arch, "sm_80");
  EXPECT_EQ(reports[1].arch, "sm_120");

  const ScopedEnvironment precompiled("PARAPET_PRECOMPILED_DIR", directory.path() / "new");
  const ScopedEnvironment empty_cache("PARAPET_CACHE_DIR", directory.path() / "empty");
  const auto config = parse_kernel_name(kKernel);
  for (const char* arch : {"sm_80", "sm_86", "sm_89", "sm_120", "sm_121"}) {
    EXPECT_FALSE(find_kernel(config, Arch::parse(arch)).is_ptx()) << arch;
  }
  EXPECT_FALSE(std::filesystem::exists(directory.path() / "empty"));
}

TEST(Precompile, RefusesNamesBeforeItCompiles) {
  const TemporaryDirectory directory;
  EXPECT_NE(
      message_of({.archs = {}, .directory = directory.path()}).find("archs: expected at least one"),
      std::string::npos);
  EXPECT_NE(
      message_of({.archs = {"sm_80", "hopper"}, .directory = directory.path()}).find("'hopper'"),
      std::string::npos);
  EXPECT_NE(message_of({.archs = {"sm_80"}, .kernels = {"fast"}, .directory = directory.path()})
                .find("'fast'"),
            std::string::npos);
}

TEST(KernelStore, CompilesOnceAndRebuildsWhatIsDamaged) {
  PARAPET_NVRTC_OR_SKIP();
  const TemporaryDirectory directory;
  const ScopedEnvironment cache("PARAPET_CACHE_DIR", directory.path() / "cache");
  const ScopedEnvironment precompiled("PARAPET_PRECOMPILED_DIR", directory.path() / "nothing");
  const auto config = parse_kernel_name(kKernel);
  const Arch arch = Arch::parse("sm_90a");
  const std::string first = find_kernel(config, arch).bytes;
  ASSERT_EQ(kernel_cache().entries.size(), 1u);

  // An entry that loads is not compiled again: a marked one comes back as it is.
  const auto file = directory.path() / "cache" / kernel_cache().entries[0].file;
  EXPECT_EQ(find_kernel(config, arch).bytes, first);
  const auto size = std::filesystem::file_size(file);
  std::filesystem::resize_file(file, size / 2);
  EXPECT_EQ(find_kernel(config, arch).bytes, first);
  EXPECT_EQ(std::filesystem::file_size(file), size) << "the damaged entry was not replaced";

  EXPECT_EQ(clear_kernel_cache(), 1);
  EXPECT_TRUE(kernel_cache().entries.empty());
  EXPECT_EQ(kernel_cache().problem, "");
}

TEST(KernelStore, GoesOnWithoutACacheItMayNotUse) {
  PARAPET_NVRTC_OR_SKIP();
  const TemporaryDirectory directory;
  const ScopedEnvironment cache("PARAPET_CACHE_DIR", directory.path());
  const ScopedEnvironment precompiled("PARAPET_PRECOMPILED_DIR", directory.path() / "nothing");
  std::filesystem::permissions(directory.path(), std::filesystem::perms::all);
  EXPECT_FALSE(find_kernel(parse_kernel_name(kKernel), Arch::parse("sm_90a")).bytes.empty());
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
  EXPECT_NE(kernel_cache().problem.find("others can write to it"), std::string::npos);
}

TEST(KernelStore, ReadsItsLimit) {
  const auto limit = [](const char* text) {
    const ScopedEnvironment environment("PARAPET_CACHE_MB", text);
    return cache_limit_bytes() / 1'000'000;
  };
  EXPECT_EQ(limit("3"), 3);
  EXPECT_EQ(limit("0"), 0);
  for (const char* nonsense : {"", "-1", "many", "3 MB", "99999999999999999999"}) {
    EXPECT_EQ(limit(nonsense), 500) << nonsense;
  }
}

}  // namespace
}  // namespace parapet::cuda
