#include "parapet/info.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

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

Json to_json(const CudaInfo& cuda) {
  const auto text_or_null = [](const std::string& text) {
    return text.empty() ? Json() : Json(text);
  };
  Json gpus = Json::array();
  for (const GpuInfo& gpu : cuda.gpus) {
    gpus.push_back({{"index", gpu.index},
                    {"name", gpu.name},
                    {"capability", gpu.capability},
                    {"multiprocessors", gpu.num_multiprocessors},
                    {"memory_bytes", gpu.memory_bytes},
                    {"supported", gpu.supported}});
  }
  return {{"driver", text_or_null(cuda.driver_version)},
          {"driver_problem", text_or_null(cuda.driver_problem)},
          {"nvrtc", text_or_null(cuda.nvrtc_version)},
          {"nvrtc_path", text_or_null(cuda.nvrtc_path)},
          {"nvrtc_problem", text_or_null(cuda.nvrtc_problem)},
          {"gpus", std::move(gpus)}};
}

std::vector<std::string> backends(const CudaInfo& cuda) {
  const bool has_gpu = std::any_of(cuda.gpus.begin(), cuda.gpus.end(),
                                   [](const GpuInfo& gpu) { return gpu.supported; });
  return has_gpu ? std::vector<std::string>{"cpu", "cuda"} : std::vector<std::string>{"cpu"};
}

void print_cuda(const CudaInfo& cuda) {
  print_item("driver", cuda.driver_problem.empty() ? "CUDA " + cuda.driver_version
                                                   : "none: " + cuda.driver_problem);
  for (const GpuInfo& gpu : cuda.gpus) {
    print_item(
        fmt::format("GPU {}", gpu.index),
        fmt::format("{}, capability {}, {} multiprocessors, {}{}", gpu.name, gpu.capability,
                    gpu.num_multiprocessors, bytes_text(static_cast<double>(gpu.memory_bytes)),
                    gpu.supported ? "" : "; parapet has no kernels for it"));
  }
  print_item("NVRTC", cuda.nvrtc_problem.empty()
                          ? fmt::format("{} ({})", cuda.nvrtc_version, cuda.nvrtc_path)
                          : "none: " + cuda.nvrtc_problem);
}

int run_info(bool json) {
  const CpuInfo cpu = cpu_info();
  const CudaInfo cuda = cuda_info();
  if (json) {
    print_json({{"version", version()},
                {"backends", backends(cuda)},
                {"cpu",
                 {{"name", cpu_name()},
                  {"threads", cpu.num_threads},
                  {"simd_target", cpu.simd_target},
                  {"simd_targets", cpu.simd_targets},
                  {"caches", to_json(caches())},
                  {"memory_available_bytes", static_cast<std::int64_t>(available_memory())}}},
                {"cuda", to_json(cuda)}});
    return kOk;
  }
  print_item("parapet", version());
  print_item("backends", fmt::format("{}", fmt::join(backends(cuda), ", ")));
  print_item("processor", cpu_name());
  print_item("SIMD", fmt::format("{} (this processor runs {})", cpu.simd_target,
                                 fmt::join(cpu.simd_targets, ", ")));
  print_item("threads", fmt::format("{}", cpu.num_threads));
  print_item("caches", cache_text(caches()));
  print_item("memory", bytes_text(available_memory()) + " available");
  print_cuda(cuda);
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
