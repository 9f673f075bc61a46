#include "cuda/nvrtc.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "cuda/cubin.h"
#include "cuda/nvrtc_or_skip.h"
#include "parapet/error.h"

namespace parapet::cuda {
namespace {

KernelImage compile(const std::string& unit, const char* arch) {
  const Nvrtc& nvrtc = Nvrtc::instance();
  return nvrtc.compile("test", unit, {"-std=c++20", nvrtc.target(Arch::parse(arch)).option});
}

// 64 floats that are indexed at run time live in local memory; 400 bytes are shared.
constexpr const char* kUnit = R"(
struct Params { long long n; float* x; };
extern "C" __global__ void __launch_bounds__(128) other(float* x) { *x = 1; }
extern "C" __global__ void __launch_bounds__(128) kernel(const Params p) {
  __shared__ float shared[100];
  float array[64];
  for (int i = 0; i < 64; ++i) array[i] = p.x[i * threadIdx.x];
  shared[threadIdx.x % 100] = array[threadIdx.x % 64];
  __syncthreads();
  for (int i = 0; i < 64; ++i) p.x[i] += array[(i * p.n) % 64] + shared[3];
}
)";

// Where only a wheel brings NVRTC, the system would not find its second library.
TEST(Nvrtc, HasTheBuiltinsBesideIt) {
  PARAPET_NVRTC_OR_SKIP();
  const Nvrtc& nvrtc = Nvrtc::instance();
  const std::filesystem::path builtins = std::filesystem::path(nvrtc.path()).parent_path() /
                                         ("libnvrtc-builtins.so." + nvrtc.version());
  if (!std::filesystem::exists(builtins)) GTEST_SKIP() << "no " << builtins;
  EXPECT_NE(dlopen(builtins.c_str(), RTLD_LAZY | RTLD_NOLOAD), nullptr) << builtins;
}

TEST(Nvrtc, CompilesMachineCodeThatTellsItsResources) {
  PARAPET_NVRTC_OR_SKIP();
  for (const char* arch : {"sm_80", "sm_89", "sm_90a", "sm_120"}) {
    const KernelImage image = compile(kUnit, arch);
    EXPECT_FALSE(image.is_ptx());
    const KernelResources resources = read_resources(image.bytes, "kernel");
    EXPECT_GT(resources.registers, 8) << arch;
    EXPECT_LE(resources.registers, 255) << arch;
    EXPECT_EQ(resources.local_bytes, 256) << arch;
    EXPECT_EQ(resources.shared_bytes, 400) << arch;
    EXPECT_EQ(resources.parameter_bytes, 16) << arch;
    const KernelResources other = read_resources(image.bytes, "other");
    EXPECT_EQ(other.local_bytes, 0) << arch;
    EXPECT_EQ(other.shared_bytes, 0) << arch;
    EXPECT_EQ(other.parameter_bytes, 8) << arch;
    EXPECT_THROW(read_resources(image.bytes, "none"), Error);
  }
}

TEST(Nvrtc, ReadsNothingOutsideADamagedCubin) {
  PARAPET_NVRTC_OR_SKIP();
  const std::string whole = compile(kUnit, "sm_80").bytes;
  const auto try_to_read = [](const std::string& bytes) {
    // An exact allocation: the address sanitizer sees a byte too far.
    const std::vector<char> exact(bytes.begin(), bytes.end());
    try {
      read_resources({exact.data(), exact.size()}, "kernel");
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kRuntime);
    }
  };
  for (std::size_t size = 0; size < whole.size(); size += 37) try_to_read(whole.substr(0, size));
  for (std::size_t i = 0; i < whole.size(); i += 3) {
    std::string damaged = whole;
    damaged[i] = static_cast<char>(damaged[i] ^ 0xff);
    try_to_read(damaged);
  }
}

TEST(Nvrtc, IncludesTheEmbeddedSources) {
  PARAPET_NVRTC_OR_SKIP();
  const KernelImage image = compile(
      "#include \"plan/segment.h\"\n"
      "extern \"C\" __global__ void kernel(long long* x) {\n"
      "  *x = parapet::plan::packed_extent(x[1], x[2], x[3]).length;\n"
      "}\n",
      "sm_90a");
  EXPECT_GT(read_resources(image.bytes, "kernel").registers, 0);
}

TEST(Nvrtc, GivesPtxForAGpuOfTheFuture) {
  PARAPET_NVRTC_OR_SKIP();
  EXPECT_TRUE(Nvrtc::instance().target(Arch::parse("sm_990")).ptx);
  const KernelImage image = compile(kUnit, "sm_990");
  EXPECT_TRUE(image.is_ptx());
  EXPECT_NE(image.bytes.find(".entry kernel"), std::string::npos);
}

TEST(Nvrtc, RefusesAnArchitectureOfThePast) {
  PARAPET_NVRTC_OR_SKIP();
  try {
    Nvrtc::instance().target(Arch::parse("sm_20"));
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    const std::string text = error.what();
    EXPECT_NE(text.find("does not know sm_20"), std::string::npos) << text;
    EXPECT_NE(text.find("sm_80"), std::string::npos) << text;
  }
}

TEST(Nvrtc, ReportsTheCompilersMessages) {
  PARAPET_NVRTC_OR_SKIP();
  try {
    compile("extern \"C\" __global__ void kernel() { undeclared_name = 1; }", "sm_80");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kRuntime);
    EXPECT_NE(std::string(error.what()).find("undeclared_name"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace parapet::cuda
