#include <cmath>

#include "api/checks.h"
#include "api/refuse.h"

namespace parapet::api {
namespace {

// Far beyond what is of use; both are a count of things that are made.
constexpr int kMaxSplits = 256;
constexpr int kMaxThreads = 1024;

// Backends fold constants such as log2(e) into the factors on scores, in float32, and divide by
// them.
constexpr float kMaxFactor = 1e30f;

void check_window(const char* name, const std::optional<std::int64_t>& window) {
  if (window && *window < -1)
    refuse("{}: expected at least -1 (unlimited), found {}", name, *window);
}

void check_count(const char* name, int count, int most) {
  if (count < 0 || count > most) refuse("{}: expected 0 to {}, found {}", name, most, count);
}

}  // namespace

void check_options(const ForwardOptions& options) {
  // A NaN fails every comparison.
  if (options.softmax_scale && !(std::fabs(*options.softmax_scale) <= kMaxFactor)) {
    refuse("softmax_scale: expected a finite number, at most 1e30 in size, found {}",
           *options.softmax_scale);
  }
  const float softcap = options.softcap;
  if (softcap != 0 && !(softcap >= 1 / kMaxFactor && softcap <= kMaxFactor)) {
    refuse("softcap: expected a finite number of at least 0: 0 (off) or 1e-30 to 1e30, found {}",
           softcap);
  }
  check_window("window_left", options.window_left);
  check_window("window_right", options.window_right);
  check_count("num_splits", options.num_splits, kMaxSplits);
  check_count("num_threads", options.num_threads, kMaxThreads);
}

}  // namespace parapet::api
