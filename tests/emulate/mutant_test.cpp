#include "emulate/mutant.h"

#include <gtest/gtest.h>
#include <regex.h>

#include <ostream>
#include <string>

#include "emulate/emulated_call.h"
#include "emulate/launch.h"

// Does the emulator find faults? Copies of the kernels with one fault each (mutants/list.cmake)
// have to be reported, whatever the schedule.

namespace parapet::testing {

#define PARAPET_MUTANT(name, report)                \
  void name##_forward(const ForwardParams& params); \
  void name##_work_list(const ForwardParams& params);
#include "mutants.inc"
#undef PARAPET_MUTANT

namespace {

struct Mutant {
  const char* name;
  const char* report;
  HostKernels kernels;
};

void PrintTo(const Mutant& mutant, std::ostream* out) {
  *out << mutant.name;
}

const Mutant kMutants[] = {
#define PARAPET_MUTANT(name, report) {#name, report, {name##_forward, name##_work_list}},
#include "mutants.inc"
#undef PARAPET_MUTANT
};

constexpr std::uint64_t kSeeds = 4;

// Warps that skip tiles and warps that don't, a partial tile, blocks without work, a length beyond
// its tensor.
HostCall make_call(std::uint64_t seed) {
  HostCall call({.q_lens = {200, 40}, .k_lens = {420, 70}, .options = {.causal = true}}, seed);
  call.cu_seqlens_k->set(2, 520);
  return call;
}

std::string fault_of(const EmulatedRun& run) {
  const HostCall call = make_call(run.seed);
  try {
    run_emulated(call, run);
  } catch (const emulate::Fault& fault) {
    return fault.what();
  }
  return "no fault";
}

EmulatedRun run_with(std::uint64_t seed) {
  return {.seed = seed, .shared_bytes_per_sm = 1 << 30, .grid_factor = 2};
}

// POSIX: std::regex makes compilers warn of itself.
bool contains(const std::string& text, const char* pattern) {
  regex_t compiled;
  if (regcomp(&compiled, pattern, REG_EXTENDED | REG_NOSUB) != 0) return false;
  const bool found = regexec(&compiled, text.c_str(), 0, nullptr, 0) == 0;
  regfree(&compiled);
  return found;
}

class MutantTest : public ::testing::TestWithParam<Mutant> {};

TEST_P(MutantTest, IsReported) {
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    EmulatedRun run = run_with(seed);
    run.kernels = GetParam().kernels;
    const std::string found = fault_of(run);
    EXPECT_TRUE(contains(found, GetParam().report)) << "seed " << seed << ": " << found;
  }
}

INSTANTIATE_TEST_SUITE_P(, MutantTest, ::testing::ValuesIn(kMutants),
                         [](const auto& tested) { return std::string(tested.param.name); });

TEST(Mutants, TheKernelItselfIsNot) {
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed)
    EXPECT_EQ(fault_of(run_with(seed)), "no fault");
}

}  // namespace
}  // namespace parapet::testing
