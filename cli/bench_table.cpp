#include "bench_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "console.h"

namespace parapet::cli {

void BenchTable::head(const std::string& workload, DType dtype) {
  const std::string title = fmt::format("{}, {}", workload, name_of(dtype));
  if (title == title_) return;
  fmt::print("{}{}\n", title_.empty() ? "" : "\n", bold(title));
  fmt::print("{:>3}  {:<{}} {:>9} {:>9} {:>7} {:>13} {:>7}", "row", "case", label_width_, "ms",
             "GFLOP/s", "GB/s", "of its limit", "quiet");
  if (earlier_) fmt::print(" {:>9} {:>8}", "before", "speedup");
  fmt::print("\n");
  title_ = title;
}

void BenchTable::add(const Measurement& m) {
  head(m.workload, m.c.dtype);
  const auto quiet = std::count_if(m.rounds.begin(), m.rounds.end(),
                                   [](const Round& round) { return round.quiet; });
  fmt::print("{:>3}  {:<{}} {:>9.4g} {:>9.1f} {:>7.1f} {:>13} {:>7}", m.row, tools::label(m.c),
             label_width_, m.ms, m.gflops, m.gbs,
             fmt::format("{} of {}", percent_text(m.share), m.limited_by_reads ? "reads" : "FMA"),
             fmt::format("{}/{}", quiet, m.rounds.size()));
  if (earlier_) {
    if (const Earlier* before = earlier_->find(m)) {
      fmt::print(" {:>9.4g} {:>7.2f}x", before->ms, before->ms / m.ms);
    } else {
      fmt::print(" {:>9} {:>8}", "-", "-");
    }
  }
  fmt::print("\n");
  std::fflush(stdout);
}

void BenchTable::add(const Skipped& skipped) {
  head(skipped.workload, skipped.dtype);
  fmt::print("{:>3}  {}\n", skipped.row, faint("skipped: " + skipped.reason));
  std::fflush(stdout);
}

}  // namespace parapet::cli
