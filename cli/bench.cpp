#include "bench.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>

#include "bench_measure.h"
#include "bench_table.h"
#include "commands.h"
#include "console.h"
#include "machine.h"
#include "options.h"
#include "parapet/error.h"
#include "parapet/info.h"
#include "tools/file/file.h"

namespace parapet::cli {
namespace {

struct BenchOptions {
  bool on_gpu() const { return device == "cuda"; }

  std::string device = "cpu";
  std::vector<std::string> workloads;
  std::vector<std::string> dtypes;
  std::string rows;
  int threads = 0;
  MeasureOptions measure;
  std::string json;
  std::string compare;
  bool peers = false;
};

constexpr DType kDTypes[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat16};

// The names that were asked for; none: each case in its own dtype.
std::vector<std::string_view> dtype_names(const BenchOptions& options) {
  std::vector<std::string_view> names;
  for (const DType dtype : kDTypes) {
    const auto asks = [&](const std::string& name) {
      return name == "all" || name == name_of(dtype);
    };
    if (std::any_of(options.dtypes.begin(), options.dtypes.end(), asks)) {
      names.push_back(name_of(dtype));
    }
  }
  return names;
}

bool is_wanted(const BenchOptions& options, const tools::Case& c, DType dtype) {
  if (options.dtypes.empty()) return dtype == c.dtype;
  const std::vector<std::string_view> names = dtype_names(options);
  return std::find(names.begin(), names.end(), name_of(dtype)) != names.end();
}

void print_machine(const Gauge& gauge) {
  fmt::print("{}, {} threads, {}: {} of float32 multiply-adds, {:.1f} GB/s of reads\n\n",
             cpu_name(), gauge.threads(), cpu_info().simd_target,
             rate_text(gauge.best_fma_gflops()), gauge.best_read_gbs());
}

void print_quiet(const BenchRun& run) {
  if (run.quiet) return;
  fmt::print("\n{}\n",
             red("The machine was busy: another program took part of it. Figures are too low, and "
                 "ratios mean little; measure again when it is quiet."));
}

bool was_quiet(const Gauge& gauge, const std::vector<Measurement>& results) {
  return gauge.saw_free_cores() &&
         std::all_of(results.begin(), results.end(), [](const Measurement& m) {
           const auto quiet = std::count_if(m.rounds.begin(), m.rounds.end(),
                                            [](const Round& round) { return round.quiet; });
           return 2 * quiet >= static_cast<std::ptrdiff_t>(m.rounds.size());
         });
}

std::size_t label_width(const std::vector<tools::Workload>& workloads,
                        const BenchOptions& options) {
  std::size_t width = 0;
  for (const tools::Workload& workload : workloads) {
    for (const std::size_t row : select_rows(options.rows, workload.cases.size())) {
      width = std::max(width, tools::label(workload.cases[row]).size());
    }
  }
  return width;
}

void measure_workload(const tools::Workload& workload, const BenchOptions& options, Gauge& gauge,
                      BenchTable& table, BenchRun& run) {
  for (const DType dtype : kDTypes) {
    for (const std::size_t row : select_rows(options.rows, workload.cases.size())) {
      tools::Case c = workload.cases[row];
      if (!is_wanted(options, c, dtype)) continue;
      c.dtype = dtype;
      Measurement m = plan_measurement(workload.name, row, c, gauge);
      if (const auto reason = reason_to_skip(m, gauge, options.measure)) {
        run.skipped.push_back({workload.name, row, dtype, *reason});
        table.add(run.skipped.back());
        continue;
      }
      {
        const Progress progress(fmt::format("measuring {}", tools::label(c)));
        measure(m, gauge, options.measure);
      }
      table.add(m);
      run.results.push_back(std::move(m));
    }
  }
}

int run_here(const BenchOptions& options) {
  // Everything that may be refused is read before anything is measured.
  std::vector<tools::Workload> workloads;
  for (const std::string& name : options.workloads) {
    workloads.push_back(tools::read_workload(name));
    select_rows(options.rows, workloads.back().cases.size());
  }
  std::optional<EarlierRun> earlier;
  if (!options.compare.empty()) earlier.emplace(options.compare);

  Gauge gauge(threads_of(options.threads));
  print_machine(gauge);
  BenchTable table(earlier ? &*earlier : nullptr, label_width(workloads, options));
  BenchRun run;
  for (const tools::Workload& workload : workloads) {
    measure_workload(workload, options, gauge, table, run);
  }
  run.threads = gauge.threads();
  run.fma_gflops = gauge.best_fma_gflops();
  run.read_gbs = gauge.best_read_gbs();
  run.quiet = was_quiet(gauge, run.results);
  print_quiet(run);
  if (!options.json.empty()) {
    tools::write_file(options.json, [&](std::ostream& stream) {
      stream << to_json(run).dump(1, ' ', false, tools::Json::error_handler_t::replace) << '\n';
    });
  }
  return kOk;
}

// A check for CLI11, whose own ones take NaN.
std::string positive_number(const std::string& text) {
  double value = 0;
  return CLI::detail::lexical_cast(text, value) && value > 0
             ? ""
             : fmt::format("expected a number above 0, found {}", text);
}

// The same request in the words of parapet.bench.
std::vector<std::string> python_arguments(const BenchOptions& options) {
  std::vector<std::string> arguments = options.workloads;
  const auto add = [&](const char* name, const std::string& value) {
    if (!value.empty()) arguments.insert(arguments.end(), {name, value});
  };
  add("--device", options.device);
  if (options.peers) add("--peers", options.on_gpu() ? "fa2,cudnn" : "torch");
  add("--dtype", fmt::format("{}", fmt::join(dtype_names(options), ",")));
  if (!options.rows.empty()) {
    const tools::Workload first = tools::read_workload(options.workloads.front());
    for (const std::size_t row : select_rows(options.rows, first.cases.size())) {
      add("--row", fmt::format("{}", row));
    }
  }
  add("--rounds", fmt::format("{}", options.measure.rounds));
  add("--max-seconds", fmt::format("{}", options.measure.max_seconds));
  add("--json", options.json);
  return arguments;
}

bool can_import(const std::string& python, const char* module) {
  const std::string code = fmt::format(
      "import importlib, sys\ntry:\n  importlib.import_module('{}')\n"
      "except ImportError as error:\n  sys.exit(str(error))",
      module);
  const char* const argv[] = {python.c_str(), "-c", code.c_str(), nullptr};
  pid_t child = 0;
  int status = 0;
  const int error = ::posix_spawnp(&child, python.c_str(), nullptr, nullptr,
                                   const_cast<char* const*>(argv), environ);
  return error == 0 && ::waitpid(child, &status, 0) == child && status == 0;
}

// Becomes `python3 -m parapet.bench`, which has PyTorch in its process: to measure it beside
// parapet, and to measure on a GPU at all.
[[noreturn]] void run_in_python(const BenchOptions& options) {
  const char* reason = options.on_gpu() ? "--device cuda" : "--peers";
  const char* chosen = std::getenv("PARAPET_PYTHON");
  const std::string python = chosen ? chosen : "python3";
  if (!can_import(python, "parapet.bench")) {
    throw Error(ErrorCode::kRuntime,
                fmt::format("{}: {} cannot import parapet.bench; install the Python package "
                            "(pip install .), or name a Python that has it in PARAPET_PYTHON",
                            reason, python));
  }
  std::vector<std::string> arguments = python_arguments(options);
  arguments.insert(arguments.begin(), {python, "-m", "parapet.bench"});
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  if (options.threads > 0) {
    ::setenv("OMP_NUM_THREADS", fmt::format("{}", options.threads).c_str(), 1);
  }
  ::execvp(argv[0], argv.data());
  throw Error(ErrorCode::kRuntime,
              fmt::format("{}: cannot start {}: {}", reason, python, std::strerror(errno)));
}

}  // namespace

Command add_bench(CLI::App& program) {
  auto options = std::make_shared<BenchOptions>();
  CLI::App* app = program.add_subcommand("bench", "Measure the speed of workloads on this machine");
  app->footer(workload_footer());
  app->add_option("workload", options->workloads,
                  "Workloads: files, or some of the names below (default: cpu-grid, on a GPU "
                  "paper-grid)")
      ->type_name("");
  app->add_option("--device", options->device, "cpu or cuda (needs the Python package and PyTorch)")
      ->check(CLI::IsMember({"cpu", "cuda"}).description(""))
      ->type_name("NAME");
  app->add_option(
         "--dtype", options->dtypes,
         "float32, bfloat16, float16, several with commas, or all (default: the workload's)")
      ->delimiter(',')
      ->check(CLI::IsMember({"float32", "bfloat16", "float16", "all"}).description(""))
      ->type_name("LIST")
      ->allow_extra_args(false);
  app->add_option("--rows", options->rows, kRowsHelp)->type_name("LIST");
  app->add_option("--rounds", options->measure.rounds,
                  "Quiet rounds to measure for each case; the median counts (default: 5)")
      ->check(CLI::Range(1, 1000).description(""))
      ->type_name("N");
  app->add_option("--max-seconds", options->measure.max_seconds,
                  "Time for one case; one whose single call takes longer is skipped (default: 60)")
      ->check(positive_number)
      ->type_name("S");
  add_threads(*app, options->threads);
  app->add_option("--json", options->json, "Write the results to this file (docs/bench-format.md)")
      ->type_name("FILE");
  auto* compare = app->add_option("--compare", options->compare,
                                  "Show the times in this earlier --json file and the speedup")
                      ->type_name("FILE");
  app->add_flag("--peers", options->peers,
                "Measure PyTorch beside parapet, in one process (needs the Python package)")
      ->excludes(compare);
  return {app, [options] {
            if (options->on_gpu() && !options->compare.empty()) {
              throw Error(ErrorCode::kInvalidArgument, "--compare: not with --device cuda");
            }
            if (options->workloads.empty()) {
              options->workloads = {options->on_gpu() ? "paper-grid" : "cpu-grid"};
            }
            if (options->peers || options->on_gpu()) run_in_python(*options);
            return run_here(*options);
          }};
}

}  // namespace parapet::cli
