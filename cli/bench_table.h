#pragma once

#include "bench.h"

namespace parapet::cli {

// The table of results, line by line as they come. `earlier`, which may be null, adds its times and
// how many times faster this run is.
class BenchTable {
 public:
  BenchTable(const EarlierRun* earlier, std::size_t label_width)
      : earlier_(earlier), label_width_(label_width) {}

  void add(const Measurement& measurement);
  void add(const Skipped& skipped);

 private:
  void head(const std::string& workload, DType dtype);

  const EarlierRun* earlier_;
  std::size_t label_width_;
  std::string title_;
};

}  // namespace parapet::cli
