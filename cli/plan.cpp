#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "commands.h"
#include "console.h"
#include "options.h"
#include "tools/workload/workload.h"

namespace parapet::cli {
namespace {

using tools::Case;
using tools::Json;

struct PlanOptions {
  std::string workload;
  std::string rows;
  bool json = false;
};

Json to_json(const plan::TileCounts& counts) {
  return {{"query_tiles", counts.query_tiles},
          {"full_tiles", counts.full},
          {"masked_tiles", counts.masked},
          {"skipped_tiles", counts.skipped},
          {"visible_pairs", counts.visible_pairs}};
}

Json to_json(const Case& c, const plan::ForwardPlan& plan) {
  Json segments = Json::array();
  for (std::size_t i = 0; i < plan.segments.size(); ++i) {
    Json segment = to_json(plan.segments[i]);
    segment["seqlen_q"] = plan.shape.segments[i].query;
    segment["seqlen_k"] = plan.shape.segments[i].key;
    segments.push_back(std::move(segment));
  }
  return {{"case", tools::to_json(c)},
          {"dtype", name_of(c.dtype)},
          {"tile_rows", plan.shape.tile_rows},
          {"tile_keys", plan.shape.tile_keys},
          {"segments", std::move(segments)},
          {"total", to_json(plan.total)},
          {"flop", plan.flops},
          {"bytes", tools::bytes_of(c)}};
}

// max_seqlen is a hint, so a wrong one is worth no more than a remark.
void remark_hint(const char* name, std::optional<std::int64_t> hint, std::int64_t longest) {
  if (!hint || *hint >= longest) return;
  fmt::print("{} is {}, and the longest segment has {} rows: it is a hint, and changes nothing\n",
             name, *hint, longest);
}

void print(const Case& c, const plan::ForwardPlan& plan) {
  fmt::print("{}", plan.text());
  fmt::print("{} to read and write once\n", bytes_text(static_cast<double>(tools::bytes_of(c))));
  std::int64_t longest_q = 0, longest_k = 0;
  for (const plan::SegmentLengths& lengths : plan.shape.segments) {
    longest_q = std::max<std::int64_t>(longest_q, lengths.query);
    longest_k = std::max<std::int64_t>(longest_k, lengths.key);
  }
  remark_hint("max_seqlen_q", c.max_seqlen_q, longest_q);
  remark_hint("max_seqlen_k", c.max_seqlen_k, longest_k);
}

int run_plan(const PlanOptions& options) {
  const tools::Workload workload = tools::read_workload(options.workload);
  const std::vector<std::size_t> rows = select_rows(options.rows, workload.cases.size());
  Json plans = Json::array();
  for (const std::size_t row : rows) {
    const Case& c = workload.cases[row];
    const plan::ForwardPlan plan = tools::plan_of(c);
    if (options.json) {
      plans.push_back(to_json(c, plan));
      plans.back()["row"] = row;
      continue;
    }
    fmt::print("{}{}\n", row == rows.front() ? "" : "\n",
               bold(fmt::format("{} row {}: {}", workload.name, row, tools::label(c))));
    print(c, plan);
  }
  if (options.json) print_json({{"workload", workload.name}, {"plans", std::move(plans)}});
  return kOk;
}

}  // namespace

Command add_plan(CLI::App& program) {
  auto options = std::make_shared<PlanOptions>();
  CLI::App* app = program.add_subcommand(
      "plan", "Show what a call costs before it runs: tiles, what masks skip, exact FLOPs");
  app->footer(workload_footer());
  app->add_option("-w,--workload", options->workload, kWorkloadHelp)
      ->required()
      ->type_name("WORKLOAD");
  app->add_option("--rows", options->rows, kRowsHelp)->type_name("LIST");
  app->add_flag("--json", options->json, "Print JSON");
  return {app, [options] { return run_plan(*options); }};
}

}  // namespace parapet::cli
