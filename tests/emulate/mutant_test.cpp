#include "emulate/mutant.h"

#include <gtest/gtest.h>
#include <regex.h>

#include <optional>
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

// Warps that skip tiles and warps that don't, partial tiles, segments without keys, a length beyond
// its tensor.
HostCall make_call(std::uint64_t seed) {
  HostCall call(
      {.q_lens = {200, 300, 30, 40}, .k_lens = {420, 0, 5, 70}, .options = {.causal = true}}, seed);
  call.cu_seqlens_k->set(4, 520);
  return call;
}

// The fault that is found with one unit of work a block and some blocks without any, or else with
// one multiprocessor's blocks for all units.
std::string fault_of(std::uint64_t seed, const std::optional<HostKernels>& kernels) {
  const HostCall call = make_call(seed);
  EmulatedRun run{.seed = seed, .shared_bytes_per_sm = kRoomy, .kernels = kernels};
  try {
    run.grid_factor = 2;
    run_emulated(call, run);
    run.grid_factor = 1;
    run.multiprocessors = 1;
    run_emulated(call, run);
  } catch (const emulate::Fault& fault) {
    return fault.what();
  }
  return "no fault";
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
    const std::string found = fault_of(seed, GetParam().kernels);
    EXPECT_TRUE(contains(found, GetParam().report)) << "seed " << seed << ": " << found;
  }
}

INSTANTIATE_TEST_SUITE_P(, MutantTest, ::testing::ValuesIn(kMutants),
                         [](const auto& tested) { return std::string(tested.param.name); });

TEST(Mutants, TheKernelItselfIsNot) {
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed)
    EXPECT_EQ(fault_of(seed, std::nullopt), "no fault");
}

}  // namespace
}  // namespace parapet::testing
