#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tools/json/json.h"
#include "tools/workload/workload.h"

// What `bench` measures, and the file that it becomes (docs/bench-format.md).

namespace parapet::cli {

struct Round {
  double ms = 0;
  double fma_gflops = 0;  // the lower one of just before and just after
  bool quiet = false;
};

// One case, dtype and provider.
struct Measurement {
  std::string workload;
  std::size_t row = 0;
  tools::Case c;
  std::int64_t flop = 0;
  std::int64_t bytes = 0;
  std::vector<Round> rounds;

  double ms = 0;  // median
  double gflops = 0;
  double gbs = 0;
  bool limited_by_reads = false;  // else by multiply-adds
  double limit_rate = 0;          // of that limit, best measured round the case: GB/s or GFLOP/s
  double share = 0;               // of limit_rate
};

struct Skipped {
  std::string workload;
  std::size_t row = 0;
  DType dtype = DType::kFloat32;
  std::string reason;
};

struct BenchRun {
  int threads = 0;
  double fma_gflops = 0;
  double read_gbs = 0;
  bool quiet = true;
  std::vector<Measurement> results;
  std::vector<Skipped> skipped;
};

tools::Json to_json(const BenchRun& run);

// The time of a case in another benchmark file.
struct Earlier {
  tools::Json c;
  double ms = 0;
};

// parapet's results in a benchmark file, found by workload, row and dtype.
class EarlierRun {
 public:
  // Throws Error that names file and key.
  explicit EarlierRun(const std::string& path);

  // Null when the file has no such row or has another case there.
  const Earlier* find(const Measurement& measurement) const;

 private:
  std::map<std::string, Earlier> results_;
};

}  // namespace parapet::cli
