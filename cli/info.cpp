#include "parapet/info.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>

#include "commands.h"
#include "console.h"
#include "machine.h"

namespace parapet::cli {
namespace {

using tools::Json;

Json to_json(const std::vector<Cache>& caches) {
  Json json = Json::array();
  for (const Cache& cache : caches) {
    json.push_back({{"level", cache.level}, {"type", cache.type}, {"bytes", cache.bytes}});
  }
  return json;
}

std::string cache_text(const std::vector<Cache>& caches) {
  std::vector<std::string> parts;
  for (const Cache& cache : caches) {
    if (cache.type == "instruction") continue;
    parts.push_back(fmt::format("L{} {} KiB", cache.level, count_text(cache.bytes / 1024)));
  }
  return parts.empty() ? "unknown" : fmt::format("{}", fmt::join(parts, ", "));
}

int run_info(bool json) {
  const CpuInfo cpu = cpu_info();
  if (json) {
    print_json({{"version", version()},
                {"backends", {"cpu"}},
                {"cpu",
                 {{"name", cpu_name()},
                  {"threads", cpu.num_threads},
                  {"simd_target", cpu.simd_target},
                  {"simd_targets", cpu.simd_targets},
                  {"caches", to_json(caches())},
                  {"memory_available_bytes", static_cast<std::int64_t>(available_memory())}}},
                {"devices", Json::array()}});
    return kOk;
  }
  print_item("parapet", version());
  print_item("backends", "cpu");
  print_item("processor", cpu_name());
  print_item("SIMD", fmt::format("{} (this processor runs {})", cpu.simd_target,
                                 fmt::join(cpu.simd_targets, ", ")));
  print_item("threads", fmt::format("{}", cpu.num_threads));
  print_item("caches", cache_text(caches()));
  print_item("memory", bytes_text(available_memory()) + " available");
  print_item("devices", "no GPU: this version computes on the processor");
  return kOk;
}

}  // namespace

Command add_info(CLI::App& program) {
  auto json = std::make_shared<bool>(false);
  CLI::App* app =
      program.add_subcommand("info", "Show version, backends and what this machine has");
  app->add_flag("--json", *json, "Print JSON");
  return {app, [json] { return run_info(*json); }};
}

}  // namespace parapet::cli
