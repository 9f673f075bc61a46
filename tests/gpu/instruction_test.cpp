#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "cuda/nvrtc_or_skip.h"
#include "emulate/launch.h"
#include "gpu/device.h"
#include "gpu/instruction_probe.h"
#include "gpu/instruction_probe_source.h"

// Every instruction, its layout in lanes and registers and its rounding: on the GPU and on the
// emulator.

namespace parapet::testing {
namespace {

constexpr std::size_t kThreads = kProbeBlocks * kProbeThreads;

constexpr u32 kNotWritten = 0xabadcafe;
constexpr float kFloatNotWritten = 0x1.23456p7f;

struct Results {
  std::vector<u32> exact = std::vector<u32>(kThreads * kProbeExact, kNotWritten);
  std::vector<float> floats = std::vector<float>(kThreads * kProbeFloats, kFloatNotWritten);
};

// Any floats, with zeros, infinities and NaNs among them.
std::vector<u32> make_inputs() {
  std::mt19937 generator(1);
  std::vector<u32> inputs(kProbeThreads * kProbeInputs);
  for (u32& x : inputs) x = static_cast<u32>(generator());
  const u32 special[] = {0, 0x80000000, 0x7f800000, 0xff800000, 0x7fc00000, 1, 0x477fefff};
  for (std::size_t i = 0; i < inputs.size(); i += 13)
    inputs[i] = special[i / 13 % std::size(special)];
  return inputs;
}

Results run_on_emulator(const std::vector<u32>& inputs) {
  Results results;
  const ProbeParams params{inputs.data(), results.exact.data(), results.floats.data()};
  emulate::launch(
      {.blocks = kProbeBlocks, .threads = kProbeThreads, .shared_bytes = kProbeSharedBytes},
      [&] { probe_instructions(params); });
  return results;
}

cuda::KernelImage compile(cuda::Arch arch) {
  const cuda::Nvrtc& nvrtc = cuda::Nvrtc::instance();
  const std::string unit = std::string(kInstructionProbeSource) +
                           "extern \"C\" __global__ void probe(const __grid_constant__ "
                           "parapet::testing::ProbeParams params) {\n"
                           "  parapet::testing::probe_instructions(params);\n"
                           "}\n";
  return nvrtc.compile("instruction_probe.h", unit, {"-std=c++20", nvrtc.target(arch).option});
}

Results run_on_gpu(const std::vector<u32>& inputs) {
  const cuda::GpuProperties gpu = cuda::Driver::instance().properties(0);
  const cuda::Module module(compile(cuda::Arch::of_capability(gpu.major, gpu.minor)));
  Results results;
  const std::size_t exact_bytes = results.exact.size() * sizeof(u32);
  const std::size_t float_bytes = results.floats.size() * sizeof(float);
  const cuda::Stream stream;
  const FencedMemory device_inputs(inputs.size() * sizeof(u32), Fence::kBehind);
  const FencedMemory exact(exact_bytes, Fence::kBehind);
  const FencedMemory floats(float_bytes, Fence::kBehind);
  copy_to_device(device_inputs.data(), inputs.data(), inputs.size() * sizeof(u32));
  const ProbeParams params{reinterpret_cast<const u32*>(device_inputs.data()),
                           reinterpret_cast<u32*>(exact.data()),
                           reinterpret_cast<float*>(floats.data())};
  module.function("probe", kProbeSharedBytes)
      .launch(kProbeBlocks, kProbeThreads, &params, stream.handle());
  synchronize(stream);
  copy_to_host(results.exact.data(), exact.data(), exact_bytes);
  copy_to_host(results.floats.data(), floats.data(), float_bytes);
  return results;
}

// The approximate instructions are good to about 2^-22, log2 near 1 in absolute terms.
bool is_near(float a, float b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  if (a == b) return true;
  const float error = std::fabs(a - b);
  return error <= 0x1p-21f * std::fabs(b) || (std::fabs(b) > 0x1p-20f && error <= 0x1p-22f);
}

TEST(InstructionProbe, RunsOnTheEmulator) {
  const Results results = run_on_emulator(make_inputs());
  EXPECT_EQ(std::ranges::count(results.exact, kNotWritten), 0);
  EXPECT_EQ(std::ranges::count(results.floats, kFloatNotWritten), 0);
}

TEST(InstructionProbe, Compiles) {
  PARAPET_NVRTC_OR_SKIP();
  for (const char* arch : {"sm_80", "sm_90a", "sm_120"})
    EXPECT_FALSE(compile(cuda::Arch::parse(arch)).bytes.empty());
}

using GpuInstructions = GpuTest;

TEST_F(GpuInstructions, AreTheEmulators) {
  const std::vector<u32> inputs = make_inputs();
  const Results expected = run_on_emulator(inputs), found = run_on_gpu(inputs);
  int wrong = 0;
  for (std::size_t i = 0; i < found.exact.size() && wrong < 20; ++i) {
    if (found.exact[i] == expected.exact[i]) continue;
    ADD_FAILURE() << "thread " << i / kProbeExact << ", word " << i % kProbeExact << ": GPU "
                  << std::hex << found.exact[i] << ", emulator " << expected.exact[i];
    ++wrong;
  }
  for (std::size_t i = 0; i < found.floats.size() && wrong < 40; ++i) {
    if (is_near(found.floats[i], expected.floats[i])) continue;
    ADD_FAILURE() << "thread " << i / kProbeFloats << ", float " << i % kProbeFloats << ": GPU "
                  << found.floats[i] << ", emulator " << expected.floats[i];
    ++wrong;
  }
}

}  // namespace
}  // namespace parapet::testing
