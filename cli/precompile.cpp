#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "commands.h"
#include "console.h"
#include "parapet/kernels.h"
#include "tools/file/file.h"

namespace parapet::cli {
namespace {

using tools::Json;

struct Options {
  std::vector<std::string> archs{"sm_80", "sm_89", "sm_90a", "sm_120"};
  std::string keys;
  std::string directory;
  int threads = 0;
  bool json = false;
};

constexpr std::size_t kLargestKeysFile = std::size_t{1} << 20;

// The names in a file: one a line; what follows a # is a comment.
std::vector<std::string> read_keys(const std::string& file) {
  std::vector<std::string> names;
  std::istringstream lines(tools::read_text(file, kLargestKeysFile));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line.substr(0, line.find('#')));
    for (std::string name; words >> name;) names.push_back(name);
  }
  return names;
}

Json to_json(const KernelReport& report) {
  Json json{{"kernel", report.kernel},
            {"arch", report.arch},
            {"code", report.ptx ? "ptx" : "cubin"},
            {"threads", report.threads},
            {"image_bytes", report.image_bytes},
            {"seconds", report.seconds}};
  if (!report.ptx) {
    json["registers"] = report.registers;
    json["local_bytes"] = report.local_bytes;
    json["shared_bytes"] = report.shared_bytes;
  }
  return json;
}

constexpr const char* kRow = "{:<44}{:<9}{:>10}{:>8}{:>10}{:>10}{:>9}\n";

void print_row(const KernelReport& report) {
  const auto unless_ptx = [&](std::int64_t number) {
    return report.ptx ? std::string("-") : count_text(number);
  };
  fmt::print(kRow, report.kernel, report.arch + (report.ptx ? " PTX" : ""),
             unless_ptx(report.registers), unless_ptx(report.local_bytes),
             unless_ptx(report.shared_bytes), count_text(report.image_bytes),
             seconds_text(report.seconds));
  std::fflush(stdout);
}

int run_precompile(const Options& options) {
  PrecompileOptions request{
      .archs = options.archs,
      .kernels = options.keys.empty() ? std::vector<std::string>{} : read_keys(options.keys),
      .directory = options.directory,
      .num_threads = options.threads};
  if (!options.json) {
    fmt::print("{}", bold(fmt::format(kRow, "kernel", "arch", "registers", "local", "shared",
                                      "size", "time")));
    request.on_kernel = print_row;
  }
  const std::vector<KernelReport> reports = precompile(request);
  std::int64_t bytes = 0;
  for (const KernelReport& report : reports) bytes += report.image_bytes;
  if (options.json) {
    Json kernels = Json::array();
    for (const KernelReport& report : reports) kernels.push_back(to_json(report));
    print_json({{"directory", options.directory},
                {"image_bytes", bytes},
                {"kernels", std::move(kernels)}});
    return kOk;
  }
  fmt::print("{} kernels, {}, in {}\n", reports.size(), bytes_text(static_cast<double>(bytes)),
             options.directory);
  return kOk;
}

}  // namespace

Command add_precompile(CLI::App& program) {
  auto options = std::make_shared<Options>();
  CLI::App* app = program.add_subcommand(
      "precompile",
      "Compile GPU kernels ahead of time, also without a GPU, and report what they use");
  app->add_option("--arch", options->archs, "GPU architectures, such as sm_89,sm_120")
      ->delimiter(',')
      ->capture_default_str();
  app->add_option("--keys", options->keys,
                  "File of kernel names, one a line (default: the common ones)");
  app->add_option("-o,--out", options->directory,
                  "Directory to fill; name it in PARAPET_PRECOMPILED_DIR to use it")
      ->required();
  app->add_option("--threads", options->threads,
                  "Kernels to compile at a time (default: processors)")
      ->check(CLI::Range(1, 1024));
  app->add_flag("--json", options->json, "Print JSON");
  return {app, [options] { return run_precompile(*options); }};
}

}  // namespace parapet::cli
