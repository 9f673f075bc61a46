#include <fmt/chrono.h>
#include <fmt/format.h>

#include <memory>

#include "commands.h"
#include "console.h"
#include "parapet/kernels.h"

namespace parapet::cli {
namespace {

using tools::Json;

std::int64_t total_bytes(const KernelCacheReport& cache) {
  std::int64_t bytes = 0;
  for (const auto& entry : cache.entries) bytes += entry.bytes;
  return bytes;
}

void print(const KernelCacheReport& cache) {
  print_item("directory", cache.directory.empty() ? "none" : cache.directory);
  if (!cache.problem.empty()) {
    print_item("not used", cache.problem);
    return;
  }
  print_item("holds", fmt::format("{} kernels, {} of at most {}", cache.entries.size(),
                                  bytes_text(static_cast<double>(total_bytes(cache))),
                                  bytes_text(static_cast<double>(cache.limit_bytes))));
  for (const auto& entry : cache.entries) {
    fmt::print("{:%F %T}  {:>10}  {}\n", fmt::localtime(static_cast<std::time_t>(entry.last_used)),
               count_text(entry.bytes), entry.file);
  }
}

Json to_json(const KernelCacheReport& cache) {
  Json entries = Json::array();
  for (const auto& entry : cache.entries) {
    entries.push_back(
        {{"file", entry.file}, {"bytes", entry.bytes}, {"last_used", entry.last_used}});
  }
  return {{"directory", cache.directory},
          {"problem", cache.problem.empty() ? Json() : Json(cache.problem)},
          {"bytes", total_bytes(cache)},
          {"limit_bytes", cache.limit_bytes},
          {"entries", std::move(entries)}};
}

int run_cache(bool clear, bool json) {
  if (clear) {
    const std::int64_t removed = clear_kernel_cache();
    if (json) {
      print_json({{"directory", kernel_cache().directory}, {"removed", removed}});
    } else {
      fmt::print("removed {} kernels from {}\n", removed, kernel_cache().directory);
    }
    return kOk;
  }
  const KernelCacheReport cache = kernel_cache();
  if (json) {
    print_json(to_json(cache));
  } else {
    print(cache);
  }
  return kOk;
}

}  // namespace

Command add_cache(CLI::App& program) {
  auto clear = std::make_shared<bool>(false);
  auto json = std::make_shared<bool>(false);
  CLI::App* app = program.add_subcommand(
      "cache", "List or clear the GPU kernels that were compiled on first use and kept on disk");
  app->add_flag("--clear", *clear, "Remove them all");
  app->add_flag("--json", *json, "Print JSON");
  return {app, [clear, json] { return run_cache(*clear, *json); }};
}

}  // namespace parapet::cli
