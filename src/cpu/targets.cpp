#include <hwy/targets.h>
#include <omp.h>

#include <algorithm>
#include <chrono>

#include "cpu/forward.h"
#include "cpu/kernels.h"
#include "cpu/workspace.h"
#include "parapet/error.h"

// Which SIMD targets there are, and what the machine gives at its best.

namespace parapet::cpu {
namespace {

// Highway numbers its targets so that better ones have lower bits.
std::vector<int64> usable_targets() {
  const int64 bits = hwy::SupportedTargets() & compiled_targets();
  std::vector<int64> targets;
  for (int bit = 0; bit < 63; ++bit) {
    if (bits >> bit & 1) targets.push_back(int64{1} << bit);
  }
  return targets;
}

// Work a second of all threads, each of which repeats `round` for about `seconds`.
template <class Round>
double measure_rate(int threads, double seconds, const Round& round) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  const auto elapsed = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
  double work = 0.0;
#pragma omp parallel num_threads(threads) reduction(+ : work)
  {
    do work += round(omp_get_thread_num());
    while (elapsed() < seconds);
  }
  return work / elapsed() * 1e-9;
}

}  // namespace

plan::int64 panel_rows() {
  return kernels().panel_rows;
}

std::string simd_target() {
  return hwy::TargetName(usable_targets().front());
}

std::vector<std::string> simd_targets() {
  std::vector<std::string> names;
  for (const int64 target : usable_targets()) names.emplace_back(hwy::TargetName(target));
  return names;
}

void force_simd_target(const std::string& name) {
  hwy::SetSupportedTargetsForTest(0);  // all that the CPU has
  if (name.empty()) return;
  for (const int64 target : usable_targets()) {
    if (name == hwy::TargetName(target)) return hwy::SetSupportedTargetsForTest(target);
  }
  std::string names;
  for (const std::string& known : simd_targets()) names += (names.empty() ? "" : ", ") + known;
  throw Error(ErrorCode::kInvalidArgument,
              "simd target: expected one of " + names + ", found '" + name + "'");
}

double measure_fma_rate(int threads, double seconds) {
  const Kernels& target = kernels();
  return measure_rate(threads, seconds, [&](int) { return target.multiply_add_round(); });
}

double measure_read_bandwidth(int threads, double seconds) {
  constexpr int64 kFloats = int64{32} << 20;  // 128 MiB a thread, far beyond the caches
  const std::vector<float> data(static_cast<std::size_t>(kFloats * threads), 1.0f);
  const Kernels& target = kernels();
  return measure_rate(threads, seconds, [&](int thread) {
    return target.read_round(data.data() + kFloats * thread, kFloats);
  });
}

}  // namespace parapet::cpu
