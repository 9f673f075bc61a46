#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>

#include "bench.h"
#include "machine.h"
#include "parapet/error.h"
#include "parapet/info.h"
#include "tools/file/file.h"

namespace parapet::cli {
namespace {

using tools::Json;
using tools::Node;

constexpr const char* kSchema = "parapet-bench";
constexpr int kVersion = 1;
constexpr const char* kProvider = "parapet";
constexpr std::size_t kMaxFileBytes = std::size_t{64} << 20;

std::string key_of(std::string_view workload, std::int64_t row, std::string_view dtype) {
  return fmt::format("{}\n{}\n{}", workload, row, dtype);
}

Json rounds_json(const std::vector<Round>& rounds) {
  Json json = Json::array();
  for (const Round& round : rounds) {
    json.push_back({{"ms", round.ms}, {"fma_gflops", round.fma_gflops}, {"quiet", round.quiet}});
  }
  return json;
}

Json result_json(const Measurement& m) {
  return {{"workload", m.workload},
          {"row", m.row},
          {"case", tools::to_json(m.c)},
          {"dtype", name_of(m.c.dtype)},
          {"provider", kProvider},
          {"flop", m.flop},
          {"bytes", m.bytes},
          {"rounds", rounds_json(m.rounds)},
          {"ms", m.ms},
          {"gflops", m.gflops},
          {"gbs", m.gbs},
          {"limit", m.limited_by_reads ? "read" : "fma"},
          {"limit_rate", m.limit_rate},
          {"share", m.share}};
}

}  // namespace

Json to_json(const BenchRun& run) {
  Json results = Json::array();
  for (const Measurement& m : run.results) results.push_back(result_json(m));
  Json skipped = Json::array();
  for (const Skipped& s : run.skipped) {
    skipped.push_back({{"workload", s.workload},
                       {"row", s.row},
                       {"dtype", name_of(s.dtype)},
                       {"provider", kProvider},
                       {"reason", s.reason}});
  }
  return {{"schema", kSchema},
          {"version", kVersion},
          {"created", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)))},
          {"machine",
           {{"cpu", cpu_name()},
            {"threads", run.threads},
            {"simd_target", cpu_info().simd_target},
            {"fma_gflops", run.fma_gflops},
            {"read_gbs", run.read_gbs},
            {"quiet", run.quiet}}},
          {"providers", {{kProvider, version()}}},
          {"results", std::move(results)},
          {"skipped", std::move(skipped)}};
}

EarlierRun::EarlierRun(const std::string& path) {
  const Json json = tools::parse_json(tools::read_text(path, kMaxFileBytes), path);
  const Node top(json, path);
  const Node schema = top.at("schema");
  if (schema.string() != kSchema) schema.expected(fmt::format("\"{}\"", kSchema));
  const Node format = top.at("version");
  if (format.integer(0, INT64_MAX) != kVersion) {
    format.expected(fmt::format("{}, the version that this program reads", kVersion));
  }
  for (const Node& result : top.at("results").array()) {
    if (result.at("provider").string() != kProvider) continue;
    const double ms = result.at("ms").number();
    if (ms <= 0) result.at("ms").expected("a number above 0");
    results_[key_of(result.at("workload").string(), result.at("row").integer(0, INT64_MAX),
                    result.at("dtype").string())] = {result.at("case").json(), ms};
  }
}

const Earlier* EarlierRun::find(const Measurement& m) const {
  const auto found =
      results_.find(key_of(m.workload, static_cast<std::int64_t>(m.row), name_of(m.c.dtype)));
  if (found == results_.end() || found->second.c != tools::to_json(m.c)) return nullptr;
  return &found->second;
}

}  // namespace parapet::cli
