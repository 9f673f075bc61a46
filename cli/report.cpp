#include "report.h"

#include <fmt/format.h>

#include "console.h"

namespace parapet::cli {

using tools::Json;

namespace {

Json deviation_json(const tools::Deviation& deviation) {
  return {
      {"segment", deviation.row.segment}, {"head", deviation.row.head},
      {"row", deviation.row.row},         {"dim", deviation.dim ? Json(*deviation.dim) : Json()},
      {"found", deviation.found},         {"expected", deviation.expected},
      {"error", deviation.error},         {"allowed", deviation.allowed}};
}

}  // namespace

void print_comparison(std::string_view name, const tools::Comparison& comparison) {
  if (comparison.out) print_item(fmt::format("{} out", name), comparison.out->text());
  if (comparison.lse) print_item(fmt::format("{} lse", name), comparison.lse->text());
}

Json comparison_json(const tools::Comparison& comparison) {
  return {{"rows", comparison.rows},
          {"wrong_rows", comparison.wrong_rows},
          {"worst_out", comparison.out ? deviation_json(*comparison.out) : Json()},
          {"worst_lse", comparison.lse ? deviation_json(*comparison.lse) : Json()}};
}

}  // namespace parapet::cli
