#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <memory>
#include <span>

#include "api/problem.h"
#include "commands.h"
#include "console.h"
#include "cpu/forward.h"
#include "gpu_call.h"
#include "machine.h"
#include "options.h"
#include "parapet/attention.h"
#include "parapet/error.h"
#include "parapet/info.h"
#include "report.h"
#include "tools/check/check.h"
#include "tools/workload/workload.h"

namespace parapet::cli {
namespace {

using tools::Case;
using tools::Json;

// What the whole run may take on this machine, and how much of its multiply-add rate a call reaches
// at least, as far as the choice of heads goes.
constexpr double kTargetSeconds = 10;
constexpr double kExpectedShare = 0.7;

// The check: this many heads, and of each segment the first, the last and some other rows.
constexpr std::int64_t kCheckedHeads = 2;
constexpr std::int64_t kOtherRows = 2;

// The share of a GPU's memory that a call may take, and how many times it is made there: the median
// time counts.
constexpr double kGpuMemoryShare = 0.8;
constexpr int kGpuCalls = 5;

struct DemoOptions {
  std::string device = "cpu";
  std::string workload = "video-dit-124f";
  std::size_t row = 0;
  std::int64_t heads = 0;  // 0: as many as suit the machine
  int threads = 0;
  bool json = false;
};

// A case of a workload, and the part of it that this run computes.
struct Demo {
  double flop() const { return static_cast<double>(tools::plan_of(part).flops); }
  double bytes() const { return static_cast<double>(tools::bytes_of(part)); }

  std::string workload;
  std::string source;
  std::size_t row = 0;
  Case whole;
  Case part;
  bool chose_heads = false;    // fewer than all, without being asked
  std::optional<GpuInfo> gpu;  // else the CPU computes
  int threads = 0;
  double fma_gflops = 0;  // of the CPU, at the beginning
};

struct Run {
  double seconds = 0;
  double fma_gflops = 0;  // of the CPU, the better one of before and after
};

struct Verdict {
  tools::Comparison comparison;
  std::optional<std::string> unused_row;

  bool passed() const { return comparison.ok() && !unused_row; }
};

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Both query and key heads of a case cut to `heads` query heads, which share key heads as before.
Case with_heads(Case c, std::int64_t heads) {
  c.num_heads_k = heads / (c.num_heads / c.num_heads_k);
  c.num_heads = heads;
  return c;
}

// As many heads as half of the memory and, on a CPU, `kTargetSeconds` allow, a multiple of those
// that share a key head.
std::int64_t suitable_heads(const Demo& demo) {
  const Case& c = demo.whole;
  const std::int64_t group = c.num_heads / c.num_heads_k;
  const auto groups = static_cast<double>(c.num_heads_k);
  const double bytes = static_cast<double>(tools::bytes_of(c)) / groups;
  double heads = 0.5 * available_memory() / std::max(bytes, 1.0);
  if (demo.gpu) {
    const double gpu_memory = kGpuMemoryShare * static_cast<double>(demo.gpu->memory_bytes);
    heads = std::min(heads, gpu_memory / std::max(bytes, 1.0));
  } else {
    const double flops = static_cast<double>(tools::plan_of(c).flops) / groups;
    const double flops_in_time = kTargetSeconds * kExpectedShare * demo.fma_gflops * 1e9;
    heads = std::min(heads, flops_in_time / std::max(flops, 1.0));
  }
  return group * static_cast<std::int64_t>(std::clamp(heads, 1.0, groups));
}

std::int64_t chosen_heads(const DemoOptions& options, const Demo& demo) {
  if (options.heads == 0) return suitable_heads(demo);
  const Case& c = demo.whole;
  const std::int64_t group = c.num_heads / c.num_heads_k;
  if (options.heads > c.num_heads || options.heads % group != 0) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("--heads: expected a multiple of {} up to {}, found {}", group,
                            c.num_heads, options.heads));
  }
  return options.heads;
}

Demo prepare(const DemoOptions& options) {
  const tools::Workload workload = tools::read_workload(options.workload);
  if (options.row >= workload.cases.size()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("--row: expected a number from 0 to {}, found {}",
                            workload.cases.size() - 1, options.row));
  }
  Demo demo{.workload = workload.name,
            .source = workload.source,
            .row = options.row,
            .whole = workload.cases[options.row],
            .part = {},
            .gpu = {},
            .threads = threads_of(options.threads)};
  if (options.device == "cuda") {
    demo.gpu = first_gpu();
  } else {
    demo.fma_gflops = cpu::measure_fma_rate(demo.threads, 0.2);
  }
  demo.part = with_heads(demo.whole, chosen_heads(options, demo));
  demo.chose_heads = options.heads == 0 && demo.part.num_heads < demo.whole.num_heads;
  require_memory(demo.bytes(), "the call with " + count_text(demo.part.num_heads, "head"));
  return demo;
}

std::string lengths_text(std::span<const std::int32_t> cu_seqlens) {
  std::int32_t shortest = INT32_MAX, longest = 0;
  for (std::size_t b = 0; b + 1 < cu_seqlens.size(); ++b) {
    shortest = std::min(shortest, cu_seqlens[b + 1] - cu_seqlens[b]);
    longest = std::max(longest, cu_seqlens[b + 1] - cu_seqlens[b]);
  }
  if (shortest == longest) return count_text(longest);
  return fmt::format("{} to {}", count_text(shortest), count_text(longest));
}

std::string call_text(const Case& c) {
  std::string text = c.packed()
                         ? fmt::format(
                               "{} segments of different lengths packed behind each other: {} "
                               "queries each against their own {} keys",
                               c.batch, lengths_text(c.cu_seqlens_q), lengths_text(c.cu_seqlens_k))
                         : fmt::format("{} sequences of {} queries against {} keys", c.batch,
                                       count_text(c.seqlen_q), count_text(c.seqlen_k));
  text += "; " + count_text(c.num_heads, "head");
  if (c.num_heads_k != c.num_heads) text += fmt::format(" that share {} of keys", c.num_heads_k);
  text += fmt::format(" of dimension {}, {}{}", c.head_dim, name_of(c.dtype),
                      c.options.causal ? ", causal" : "");
  return text;
}

// The first sentence.
std::string_view summary(std::string_view source) {
  return source.substr(0, source.find(". "));
}

// Views of some heads of the whole call.
ForwardTensors slice_heads(ForwardTensors tensors, std::int64_t begin, std::int64_t heads,
                           std::int64_t group) {
  const auto cut = [](TensorView& view, int dim, std::int64_t first, std::int64_t count) {
    view = tools::slice(view, dim, first, count);
  };
  cut(tensors.q, tensors.q.rank - 2, begin, heads);
  cut(tensors.k, tensors.k.rank - 2, begin / group, heads / group);
  cut(tensors.v, tensors.v.rank - 2, begin / group, heads / group);
  cut(tensors.out, tensors.out.rank - 2, begin, heads);
  cut(*tensors.lse, tensors.lse->rank - 2, begin, heads);
  if (tensors.learnable_sink) cut(*tensors.learnable_sink, 0, begin, heads);
  return tensors;
}

// One call is one blocking function. To show progress it is made in parts, some heads at a time.
Run compute_on_cpu(const Case& c, const ForwardTensors& tensors, const ForwardOptions& options) {
  constexpr std::int64_t kParts = 20;
  const int threads = threads_of(options.num_threads);
  const std::int64_t group = c.num_heads / c.num_heads_k;
  const std::int64_t step = group * std::max<std::int64_t>(1, c.num_heads_k / kParts);
  Run run{.seconds = 0, .fma_gflops = cpu::measure_fma_rate(threads, 0.1)};
  Progress progress("computing");
  for (std::int64_t begin = 0; begin < c.num_heads; begin += step) {
    const std::int64_t heads = std::min(step, c.num_heads - begin);
    const auto start = std::chrono::steady_clock::now();
    forward(slice_heads(tensors, begin, heads, group), options);
    run.seconds += seconds_since(start);
    progress.show(static_cast<double>(begin + heads) / static_cast<double>(c.num_heads));
  }
  run.fma_gflops = std::max(run.fma_gflops, cpu::measure_fma_rate(threads, 0.1));
  return run;
}

// The first call, which loads the kernel, does not count.
Run compute_on_gpu(int gpu, const ForwardTensors& tensors, const ForwardOptions& options) {
  const Progress progress("computing");
  const GpuCall call(tensors, gpu);
  call.run(options);
  std::array<double, kGpuCalls> seconds{};
  for (double& one : seconds) {
    const auto start = std::chrono::steady_clock::now();
    call.run(options);
    one = seconds_since(start);
  }
  call.download();
  std::sort(seconds.begin(), seconds.end());
  return {.seconds = seconds[kGpuCalls / 2]};
}

Verdict check(const ForwardTensors& tensors, const ForwardOptions& options) {
  const Progress progress("checking against float64");
  const api::Problem problem = api::make_problem(tensors, options);
  const tools::Reference reference(problem,
                                   tools::sample_rows(problem, kOtherRows, kCheckedHeads, 1));
  return {reference.compare(problem), tools::find_nonzero_unused_row(problem)};
}

void print_beginning(const Demo& demo) {
  const Case& whole = demo.whole;
  print_item("parapet", version());
  print_item("the call", fmt::format("{}: {}", demo.workload, summary(demo.source)));
  print_item("", call_text(whole));
  const std::string run =
      fmt::format("{} of {} heads{}: {}, {}", demo.part.num_heads, whole.num_heads,
                  demo.chose_heads ? " (--heads N changes that)" : "", flop_text(demo.flop()),
                  bytes_text(demo.bytes()));
  if (demo.gpu) {
    print_item("machine",
               fmt::format("{}, compute capability {}, {}", demo.gpu->name, demo.gpu->capability,
                           bytes_text(static_cast<double>(demo.gpu->memory_bytes))));
    print_item("this run", run);
  } else {
    print_item("machine", fmt::format("{}, {}, {}: {} of float32 multiply-adds", cpu_name(),
                                      count_text(demo.threads, "thread"), cpu_info().simd_target,
                                      rate_text(demo.fma_gflops)));
    print_item("this run",
               fmt::format("{}, about {}", run,
                           seconds_text(demo.flop() * 1e-9 / (0.85 * demo.fma_gflops))));
  }
  std::fflush(stdout);
}

void print_speed(const Demo& demo, const Run& run) {
  const double gflops = demo.flop() * 1e-9 / run.seconds;
  std::string text =
      fmt::format("in {}: {}", bold(seconds_text(run.seconds)), bold(rate_text(gflops)));
  if (!demo.gpu) {
    text += fmt::format(", {} of what the machine's multiply-add units can do",
                        percent_text(gflops / run.fma_gflops));
  }
  print_item("computed", text);
  std::fflush(stdout);
}

void print_verdict(const Case& c, const Verdict& verdict) {
  const tools::Comparison& comparison = verdict.comparison;
  print_item("checked",
             fmt::format("{}, the first, the last and random ones of each segment in {}, "
                         "against a float64 computation from the definition",
                         count_text(comparison.rows, "row"),
                         count_text(std::min(kCheckedHeads, c.num_heads), "head")));
  print_comparison("worst", comparison);
  if (verdict.unused_row) print_item("unused", *verdict.unused_row);
  if (verdict.passed()) {
    fmt::print("\n{}\n", green("PASSED: every checked row is right."));
  } else if (comparison.wrong_rows > 0) {
    fmt::print("\n{}\n", red(fmt::format("FAILED: {} of {} checked rows are wrong.",
                                         comparison.wrong_rows, comparison.rows)));
  } else {
    fmt::print("\n{}\n", red("FAILED: a row that no segment uses is not empty."));
  }
}

Json to_json(const Demo& demo, const Run& run, const Verdict& verdict) {
  return {{"workload", demo.workload},
          {"row", demo.row},
          {"case", tools::to_json(demo.part)},
          {"dtype", name_of(demo.part.dtype)},
          {"heads_of_workload", demo.whole.num_heads},
          {"device", demo.gpu ? demo.gpu->name : cpu_name()},
          {"threads", demo.gpu ? Json() : Json(demo.threads)},
          {"seconds", run.seconds},
          {"flop", demo.flop()},
          {"gflops", demo.flop() * 1e-9 / run.seconds},
          {"fma_gflops", demo.gpu ? Json() : Json(run.fma_gflops)},
          {"check", comparison_json(verdict.comparison)},
          {"unused_row", verdict.unused_row ? Json(*verdict.unused_row) : Json()},
          {"passed", verdict.passed()}};
}

int run_demo(const DemoOptions& options) {
  const Demo demo = prepare(options);
  if (!options.json) print_beginning(demo);

  tools::Call call = tools::random_call(demo.part, 1);
  call.options.num_threads = options.threads;
  const tools::Result result = call.make_result();
  tools::fill_with_nan(result);
  ForwardTensors tensors = call.with(result);
  if (demo.gpu) tensors.lse.reset();
  const Run run = demo.gpu ? compute_on_gpu(demo.gpu->index, tensors, call.options)
                           : compute_on_cpu(demo.part, tensors, call.options);
  if (!options.json) print_speed(demo, run);

  const Verdict verdict = check(tensors, call.options);
  if (options.json) {
    print_json(to_json(demo, run, verdict));
  } else {
    print_verdict(demo.part, verdict);
  }
  return verdict.passed() ? kOk : kWrong;
}

}  // namespace

Command add_demo(CLI::App& program) {
  auto options = std::make_shared<DemoOptions>();
  CLI::App* app = program.add_subcommand(
      "demo", "Run a video transformer's attention call here and check it against float64");
  app->footer(workload_footer());
  app->add_option("-w,--workload", options->workload,
                  "Another call: a file, or one of the names below (default: video-dit-124f)")
      ->type_name("WORKLOAD");
  app->add_option("--device", options->device, "cpu or cuda: the first GPU (default: cpu)")
      ->check(CLI::IsMember({"cpu", "cuda"}).description(""))
      ->type_name("NAME");
  app->add_option("--row", options->row, "Which case of the workload, from 0 (default: 0)")
      ->type_name("N");
  app->add_option("--heads", options->heads,
                  "How many of the call's heads (default: what takes about ten seconds here, on a "
                  "GPU all)")
      ->check(CLI::Range(std::int64_t{1}, kMaxCount).description(""))
      ->type_name("N");
  add_threads(*app, options->threads);
  app->add_flag("--json", options->json, "Print JSON");
  return {app, [options] { return run_demo(*options); }};
}

}  // namespace parapet::cli
