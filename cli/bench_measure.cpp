#include "bench_measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>

#include "console.h"
#include "cpu/forward.h"
#include "machine.h"
#include "parapet/attention.h"

namespace parapet::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kFmaSeconds = 0.01;  // of one look at the machine
constexpr double kReadSeconds = 0.05;
constexpr double kRoundSeconds = 0.05;  // short calls are repeated for as long
constexpr double kExpectedShare = 0.6;  // of a limit, to guess how long a case takes
constexpr double kFreeShare = 0.6;  // of cores times a single one's rate: turbo clocks cost some
constexpr std::chrono::milliseconds kPause{20};

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

// Seconds that a call takes if it reaches `share` of its limits.
double estimate(const Measurement& m, const Gauge& gauge, double share) {
  const double by_fma = static_cast<double>(m.flop) * 1e-9 / gauge.best_fma_gflops();
  const double by_reads = static_cast<double>(m.bytes) * 1e-9 / gauge.best_read_gbs();
  return std::max(by_fma, by_reads) / share;
}

// The median of the quiet rounds, of all where none is.
double median_ms(const std::vector<Round>& rounds) {
  std::vector<double> quiet, all;
  for (const Round& round : rounds) {
    all.push_back(round.ms);
    if (round.quiet) quiet.push_back(round.ms);
  }
  return median(quiet.empty() ? all : quiet);
}

}  // namespace

Gauge::Gauge(int threads) : threads_(threads) {
  constexpr double kPatience = 2.0;
  const auto start = Clock::now();
  for (int i = 0; i < 5; ++i) {
    single_fma_ = std::max(single_fma_, cpu::measure_fma_rate(1, 2 * kFmaSeconds));
  }
  for (int i = 0; i < 5; ++i) fma_gflops();
  while (!saw_free_cores() && seconds_since(start) < kPatience) {
    std::this_thread::sleep_for(kPause);
    fma_gflops();
  }
  for (int i = 0; i < 4; ++i) read_gbs();
}

double Gauge::fma_gflops() {
  const double rate = cpu::measure_fma_rate(threads_, kFmaSeconds);
  best_fma_ = std::max(best_fma_, rate);
  return rate;
}

double Gauge::read_gbs() {
  const double rate = cpu::measure_read_bandwidth(threads_, kReadSeconds);
  best_read_ = std::max(best_read_, rate);
  return rate;
}

bool Gauge::saw_free_cores() const {
  return best_fma_ >= kFreeShare * std::min(threads_, physical_cores()) * single_fma_;
}

Measurement plan_measurement(const std::string& workload, std::size_t row, const tools::Case& c,
                             const Gauge& gauge) {
  Measurement m;
  m.workload = workload;
  m.row = row;
  m.c = c;
  m.flop = tools::plan_of(c).flops;
  m.bytes = tools::bytes_of(c);
  m.limited_by_reads = static_cast<double>(m.bytes) / gauge.best_read_gbs() >
                       static_cast<double>(m.flop) / gauge.best_fma_gflops();
  return m;
}

std::optional<std::string> reason_to_skip(const Measurement& planned, const Gauge& gauge,
                                          const MeasureOptions& options) {
  const auto bytes = static_cast<double>(planned.bytes);
  if (bytes > 0.9 * available_memory()) {
    return fmt::format("needs {} of memory, and {} are available", bytes_text(bytes),
                       bytes_text(available_memory()));
  }
  const double seconds = estimate(planned, gauge, kExpectedShare);
  if (seconds > options.max_seconds) {
    return fmt::format("about {} a call, more than --max-seconds {}", seconds_text(seconds),
                       options.max_seconds);
  }
  return std::nullopt;
}

void measure(Measurement& m, Gauge& gauge, const MeasureOptions& options) {
  tools::Call call = tools::random_call(m.c, 1);
  call.options.num_threads = gauge.threads();
  const tools::Result result = call.make_result();
  const ForwardTensors tensors = call.with(result);
  forward(tensors, call.options);  // warms up caches, memory and threads

  const auto start = Clock::now();
  const auto has_time = [&] { return seconds_since(start) < options.max_seconds; };
  const int repeats =
      static_cast<int>(std::clamp(std::ceil(kRoundSeconds / estimate(m, gauge, 1.0)), 1.0, 1000.0));
  int quiet = 0;
  for (int count = 0; quiet < options.rounds && count < 3 * options.rounds; ++count) {
    if (count > 0 && !has_time()) break;
    double before = gauge.fma_gflops();
    for (int i = 0; i < 25 && !gauge.is_quiet(before) && has_time(); ++i) {
      std::this_thread::sleep_for(kPause);
      before = gauge.fma_gflops();
    }
    const auto round_start = Clock::now();
    for (int i = 0; i < repeats; ++i) forward(tensors, call.options);
    const double ms = seconds_since(round_start) * 1e3 / repeats;
    const double after = gauge.fma_gflops();
    const double lower = std::min(before, after);
    m.rounds.push_back({ms, lower, gauge.is_quiet(lower)});
    quiet += m.rounds.back().quiet;
    m.limit_rate =
        std::max(m.limit_rate, m.limited_by_reads ? gauge.read_gbs() : std::max(before, after));
  }

  m.ms = median_ms(m.rounds);
  m.gflops = static_cast<double>(m.flop) * 1e-6 / m.ms;
  m.gbs = static_cast<double>(m.bytes) * 1e-6 / m.ms;
  m.share = (m.limited_by_reads ? m.gbs : m.gflops) / m.limit_rate;
}

}  // namespace parapet::cli
