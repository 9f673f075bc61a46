#include <cmath>

#include "api/checks.h"
#include "api/refuse.h"

namespace parapet::api {
namespace {

// Far beyond what is of use; both are a count of things that are made.
constexpr int kMaxSplits = 256;
constexpr int kMaxThreads = 1024;

void check_window(const char* name, const std::optional<std::int64_t>& window) {
  if (window && *window < -1)
    refuse("{}: expected at least -1 (unlimited), found {}", name, *window);
}

void check_count(const char* name, int count, int most) {
  if (count < 0 || count > most) refuse("{}: expected 0 to {}, found {}", name, most, count);
}

}  // namespace

void check_options(const ForwardOptions& options) {
  if (options.softmax_scale && !std::isfinite(*options.softmax_scale)) {
    refuse("softmax_scale: expected a finite number, found {}", *options.softmax_scale);
  }
  if (!std::isfinite(options.softcap) || options.softcap < 0) {
    refuse("softcap: expected a finite number of at least 0, found {}", options.softcap);
  }
  check_window("window_left", options.window_left);
  check_window("window_right", options.window_right);
  check_count("num_splits", options.num_splits, kMaxSplits);
  check_count("num_threads", options.num_threads, kMaxThreads);
}

}  // namespace parapet::api
