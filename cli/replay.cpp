#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <memory>

#include "api/problem.h"
#include "commands.h"
#include "console.h"
#include "machine.h"
#include "options.h"
#include "parapet/attention.h"
#include "parapet/error.h"
#include "parapet/info.h"
#include "plan/forward_plan.h"
#include "report.h"
#include "tools/capture/capture.h"
#include "tools/check/check.h"
#include "tools/check/difference.h"

namespace parapet::cli {
namespace {

using tools::Capture;
using tools::Json;

// Without --rows and --all-rows, a call of this much work is checked in every row.
constexpr double kSmallFlop = 4e8;
constexpr std::int64_t kCheckedHeads = 4;
constexpr std::int64_t kOtherRows = 4;
// As many of the rows in which the computed and the recorded result differ most are checked too.
constexpr std::size_t kDifferentRows = 16;

struct ReplayOptions {
  std::string file;
  std::string save;
  std::int64_t rows = -1;  // random rows a segment; -1: not given
  bool all_rows = false;
  int threads = 0;
  bool json = false;
};

// A call, what is computed here, and what the file says that it gave.
struct Replay {
  std::int64_t flop() const;

  Capture capture;
  tools::Result computed;
  std::optional<tools::Result> recorded;
  api::Problem problem;
  std::optional<api::Problem> recorded_problem;
  double seconds = 0;
};

// What was found.
struct Findings {
  bool passed() const {
    return computed.ok() && !computed_unused && (!recorded || recorded->ok()) && !recorded_unused;
  }

  bool all_rows = false;
  tools::Comparison computed;
  std::optional<std::string> computed_unused;
  std::optional<tools::Comparison> recorded;
  std::optional<std::string> recorded_unused;
  std::optional<tools::Difference> difference;
};

std::int64_t Replay::flop() const {
  std::int64_t pairs = 0;
  for (std::int64_t b = 0; b < problem.batch; ++b) {
    pairs += plan::count_visible_pairs(
        problem.band, {oracle::query_rows(problem, b).length, oracle::key_rows(problem, b).length});
  }
  return 2 * pairs * problem.num_heads * (problem.head_dim + problem.head_dim_v);
}

// Reads the file and makes sure that its call can run, before any work.
Replay open(const ReplayOptions& options) {
  Replay replay;
  const tools::InputFile file(options.file);
  require_memory(static_cast<double>(file.size()), options.file);
  replay.capture = tools::read_capture(file, options.file);
  tools::Call& call = replay.capture.call;
  call.options.num_threads = options.threads;
  const auto out_bytes = static_cast<double>(tools::bytes_of(call.q.dtype(), call.out_shape()));
  require_memory(out_bytes, options.file + ": out");
  replay.computed = call.make_result();
  tools::fill_with_nan(replay.computed);
  try {
    replay.problem = api::make_problem(call.with(replay.computed), call.options);
    if (replay.capture.out) {
      replay.recorded = {std::move(*replay.capture.out), std::move(replay.capture.lse)};
      replay.recorded_problem = api::make_problem(call.with(*replay.recorded), call.options);
    }
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{}: {}", options.file, error.what()));
  }
  return replay;
}

void compute(Replay& replay) {
  const tools::Call& call = replay.capture.call;
  const auto start = std::chrono::steady_clock::now();
  forward(call.with(replay.computed), call.options);
  replay.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

Findings check(const Replay& replay, const ReplayOptions& options) {
  const Progress progress("checking against float64");
  Findings findings;
  if (replay.recorded) {
    findings.difference =
        tools::find_difference(replay.problem, *replay.recorded_problem, kDifferentRows);
    findings.recorded_unused = tools::find_nonzero_unused_row(*replay.recorded_problem);
  }
  findings.computed_unused = tools::find_nonzero_unused_row(replay.problem);

  findings.all_rows =
      options.all_rows || (options.rows < 0 && static_cast<double>(replay.flop()) <= kSmallFlop);
  std::vector<tools::RowId> rows;
  if (findings.all_rows) {
    rows = tools::all_rows(replay.problem);
  } else {
    rows = tools::sample_rows(replay.problem, options.rows < 0 ? kOtherRows : options.rows,
                              kCheckedHeads, 1);
    if (findings.difference) {
      for (const auto& place : findings.difference->worst) rows.push_back(place.row);
    }
  }
  const tools::Reference reference(replay.problem, std::move(rows));
  findings.computed = reference.compare(replay.problem);
  if (replay.recorded) findings.recorded = reference.compare(*replay.recorded_problem);
  return findings;
}

std::string call_text(const Replay& replay) {
  const api::Problem& p = replay.problem;
  const ForwardOptions& options = replay.capture.call.options;
  const auto rows_text = [&](const char* name, const api::Layout& layout) {
    return layout.packed() ? fmt::format("{} packed {}", count_text(layout.rows), name)
                           : fmt::format("{} {} each", count_text(layout.rows), name);
  };
  std::string text =
      fmt::format("{}, {}, {}; {}, {} of keys; head dim {}", count_text(p.batch, "segment"),
                  rows_text("queries", p.query), rows_text("keys", p.key),
                  count_text(p.num_heads, "head"), p.num_heads_k, p.head_dim);
  if (p.head_dim_v != p.head_dim) text += fmt::format(", {} of values", p.head_dim_v);
  text += fmt::format("; {}", name_of(p.dtype));
  if (p.query.seqused || p.key.seqused) text += ", used lengths";
  if (options.causal) text += ", causal";
  if (options.window_left.value_or(-1) >= 0) {
    text += fmt::format(", window_left {}", *options.window_left);
  }
  if (options.window_right.value_or(-1) >= 0) {
    text += fmt::format(", window_right {}", *options.window_right);
  }
  if (p.softcap > 0) text += fmt::format(", softcap {}", p.softcap);
  if (p.sink) text += ", sink";
  return text;
}

std::string origin_text(const Capture& capture) {
  std::string text;
  for (const std::string& part : {capture.function, capture.framework}) {
    if (!part.empty()) text += fmt::format("{}{}", text.empty() ? "" : ", ", part);
  }
  if (!capture.parapet.empty()) {
    text += fmt::format("{}parapet {}", text.empty() ? "" : ", ", capture.parapet);
  }
  return text.empty() ? "by an unknown program" : text;
}

std::string difference_text(const tools::Difference& difference) {
  if (difference.different == 0) {
    return fmt::format("none: computed and recorded agree in all {} numbers",
                       count_text(difference.numbers));
  }
  const auto& worst = difference.worst.front();
  return fmt::format(
      "computed and recorded differ in {} of {} numbers, most at segment {}, head {}, "
      "row {}, {}: computed {:.8g}, recorded {:.8g}",
      count_text(difference.different), count_text(difference.numbers), worst.row.segment,
      worst.row.head, worst.row.row, worst.dim ? fmt::format("dim {}", *worst.dim) : "lse",
      worst.first, worst.second);
}

std::string verdict_text(const Findings& findings) {
  std::string text;
  const auto blame = [&](const char* name, const tools::Comparison& comparison,
                         const std::optional<std::string>& unused) {
    if (comparison.ok() && !unused) return;
    text += fmt::format(
        "{}the {} result is wrong in {}", text.empty() ? "" : "; ", name,
        comparison.ok() ? "a row that no segment uses"
                        : fmt::format("{} of {} checked rows", count_text(comparison.wrong_rows),
                                      count_text(comparison.rows)));
  };
  blame("computed", findings.computed, findings.computed_unused);
  if (findings.recorded) blame("recorded", *findings.recorded, findings.recorded_unused);
  return text;
}

void print(const Replay& replay, const Findings& findings) {
  const auto flop = static_cast<double>(replay.flop());
  print_item("the call", call_text(replay));
  print_item("recorded",
             origin_text(replay.capture) + (replay.recorded ? "" : "; the file holds no result"));
  print_item("computed", fmt::format("in {}: {}", seconds_text(replay.seconds),
                                     rate_text(flop * 1e-9 / replay.seconds)));
  print_item("checked",
             fmt::format("{}{} rows against a float64 computation from the definition",
                         findings.all_rows ? "all " : "", count_text(findings.computed.rows)));
  if (findings.difference) print_item("difference", difference_text(*findings.difference));
  print_comparison("computed", findings.computed);
  if (findings.computed_unused) print_item("computed", *findings.computed_unused);
  if (findings.recorded) print_comparison("recorded", *findings.recorded);
  if (findings.recorded_unused) print_item("recorded", *findings.recorded_unused);
  fmt::print("\n{}\n", findings.passed() ? green("PASSED: every checked row is right.")
                                         : red(fmt::format("FAILED: {}.", verdict_text(findings))));
}

Json difference_json(const tools::Difference& difference) {
  Json worst;
  if (!difference.worst.empty()) {
    const auto& place = difference.worst.front();
    worst = {{"segment", place.row.segment}, {"head", place.row.head},
             {"row", place.row.row},         {"dim", place.dim ? Json(*place.dim) : Json()},
             {"computed", place.first},      {"recorded", place.second}};
  }
  return {{"numbers", difference.numbers}, {"different", difference.different}, {"worst", worst}};
}

Json to_json(const Replay& replay, const Findings& findings, const ReplayOptions& options) {
  const auto text = [](const std::optional<std::string>& line) {
    return line ? Json(*line) : Json();
  };
  return {{"file", options.file},
          {"call", call_text(replay)},
          {"function", replay.capture.function},
          {"framework", replay.capture.framework},
          {"recorded_by", replay.capture.parapet},
          {"seconds", replay.seconds},
          {"flop", replay.flop()},
          {"all_rows", findings.all_rows},
          {"computed", comparison_json(findings.computed)},
          {"computed_unused_row", text(findings.computed_unused)},
          {"recorded", findings.recorded ? comparison_json(*findings.recorded) : Json()},
          {"recorded_unused_row", text(findings.recorded_unused)},
          {"difference", findings.difference ? difference_json(*findings.difference) : Json()},
          {"passed", findings.passed()}};
}

int run_replay(const ReplayOptions& options) {
  Replay replay = open(options);
  compute(replay);
  const Findings findings = check(replay, options);
  if (options.json) {
    print_json(to_json(replay, findings, options));
  } else {
    print(replay, findings);
  }
  if (!options.save.empty()) {
    replay.capture.out = std::move(replay.computed.out);
    replay.capture.lse = std::move(replay.computed.lse);
    replay.capture.parapet = version();
    tools::write_capture(options.save, replay.capture);
  }
  return findings.passed() ? kOk : kWrong;
}

}  // namespace

Command add_replay(CLI::App& program) {
  auto options = std::make_shared<ReplayOptions>();
  CLI::App* app = program.add_subcommand(
      "replay", "Compute a recorded call again and compare it with float64 and with its record");
  app->add_option("file", options->file,
                  "A capture, as parapet.capture() and PARAPET_CAPTURE write them in Python")
      ->required()
      ->type_name("");
  auto* all = app->add_flag("--all-rows", options->all_rows, "Check every row (slow when large)");
  app->add_option("--rows", options->rows,
                  "Check N random rows of each segment in some heads, with its first and last\n"
                  "(default: all rows of a small call, 4 of a large one)")
      ->check(CLI::Range(std::int64_t{0}, kMaxCount).description(""))
      ->type_name("N")
      ->excludes(all);
  app->add_option("--save", options->save, "Write the call with the computed result to this file")
      ->type_name("FILE");
  add_threads(*app, options->threads);
  app->add_flag("--json", options->json, "Print JSON");
  return {app, [options] { return run_replay(*options); }};
}

}  // namespace parapet::cli
