#pragma once

#include <optional>
#include <string>

#include "bench.h"

namespace parapet::cli {

struct MeasureOptions {
  int rounds = 5;           // that find the machine quiet
  double max_seconds = 60;  // for one case
};

// What the machine gives, measured again and again. It counts as quiet when all threads together
// reach what they reached at best: another program on one of the cores takes a visible part of it.
class Gauge {
 public:
  explicit Gauge(int threads);

  int threads() const { return threads_; }
  double fma_gflops();  // now
  double read_gbs();
  double best_fma_gflops() const { return best_fma_; }
  double best_read_gbs() const { return best_read_; }
  bool is_quiet(double fma_gflops) const { return fma_gflops >= 0.94 * best_fma_; }
  // Whether the best came near what the cores give one by one; otherwise something ran all the
  // time.
  bool saw_free_cores() const;

 private:
  int threads_;
  double single_fma_ = 0;
  double best_fma_ = 0;
  double best_read_ = 0;
};

// Why a case is not measured here, or nothing.
std::optional<std::string> reason_to_skip(const Measurement& planned, const Gauge& gauge,
                                          const MeasureOptions& options);

// Case and counts, before any measurement.
Measurement plan_measurement(const std::string& workload, std::size_t row, const tools::Case& c,
                             const Gauge& gauge);

// Fills in rounds and figures.
void measure(Measurement& measurement, Gauge& gauge, const MeasureOptions& options);

}  // namespace parapet::cli
