#include "options.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include "parapet/error.h"
#include "tools/workload/workload.h"

namespace parapet::cli {
namespace {

std::optional<std::size_t> parse_row(std::string_view text, std::size_t count) {
  std::size_t row = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), row);
  if (error != std::errc() || end != text.data() + text.size() || row >= count) return std::nullopt;
  return row;
}

}  // namespace

std::string workload_footer() {
  std::string text = "Workloads that have a name:";
  for (const tools::BuiltinWorkload& builtin : tools::builtin_workloads()) {
    text += fmt::format("\n  {}", builtin.name);
  }
  return fmt::format("{}\n\n{}", text, kExitCodes);
}

std::vector<std::size_t> select_rows(const std::string& text, std::size_t count) {
  std::vector<std::size_t> rows;
  if (text.empty()) {
    for (std::size_t row = 0; row < count; ++row) rows.push_back(row);
    return rows;
  }
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view part = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(part.size() + 1, rest.size()));
    const std::size_t dash = part.find('-');
    const auto first = parse_row(part.substr(0, dash), count);
    const auto last =
        dash == std::string_view::npos ? first : parse_row(part.substr(dash + 1), count);
    if (!first || !last || *first > *last) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("--rows: expected numbers from 0 to {} as in 0,2,5-7, found {}",
                              count - 1, tools::quote(text)));
    }
    for (std::size_t row = *first; row <= *last; ++row) rows.push_back(row);
  }
  return rows;
}

void add_threads(CLI::App& app, int& threads) {
  app.add_option("--threads", threads, "Threads to compute with (default: all)")
      ->check(CLI::Range(1, 1024).description(""))
      ->type_name("N");
}

}  // namespace parapet::cli
