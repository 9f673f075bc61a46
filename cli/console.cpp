#include "console.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>

namespace parapet::cli {
namespace {

constexpr std::size_t kWidth = 88;
constexpr std::size_t kNameWidth = 12;

std::string_view environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

bool has_colour() {
  static const bool result = ::isatty(STDOUT_FILENO) == 1 && environment("NO_COLOR").empty() &&
                             !environment("TERM").empty() && environment("TERM") != "dumb";
  return result;
}

std::string styled(std::string_view text, std::string_view code) {
  return has_colour() ? fmt::format("\033[{}m{}\033[0m", code, text) : std::string(text);
}

// Three digits or more of a number that is at least 1, with the prefix that makes it so.
std::string scaled(double value, std::string_view unit) {
  constexpr std::array<const char*, 6> kPrefixes{"", "k", "M", "G", "T", "P"};
  std::size_t i = 0;
  for (; value >= 999.5 && i + 1 < kPrefixes.size(); ++i) value /= 1000;
  const int decimals = value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  return fmt::format("{:.{}f} {}{}", value, decimals, kPrefixes[i], unit);
}

}  // namespace

std::string bold(std::string_view text) {
  return styled(text, "1");
}
std::string faint(std::string_view text) {
  return styled(text, "2");
}
std::string green(std::string_view text) {
  return styled(text, "1;32");
}
std::string red(std::string_view text) {
  return styled(text, "1;31");
}

std::string count_text(std::int64_t count) {
  const std::string digits = fmt::format("{}", count);
  std::string text;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && digits[i - 1] != '-' && (digits.size() - i) % 3 == 0) text.push_back(',');
    text.push_back(digits[i]);
  }
  return text;
}

std::string count_text(std::int64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count_text(count), noun, count == 1 ? "" : "s");
}

std::string bytes_text(double bytes) {
  return scaled(bytes, "B");
}
std::string flop_text(double flop) {
  return scaled(flop, "FLOP");
}
std::string rate_text(double gflops) {
  return scaled(gflops * 1e9, "FLOP/s");
}

std::string seconds_text(double seconds) {
  if (seconds >= 2 * 3600) return fmt::format("{:.1f} hours", seconds / 3600);
  if (seconds >= 90) return fmt::format("{:.1f} minutes", seconds / 60);
  if (seconds >= 0.9995) return fmt::format("{:.3g} s", seconds);
  return fmt::format("{:.3g} ms", seconds * 1e3);
}

std::string percent_text(double share) {
  return fmt::format("{:.0f} %", share * 100);
}

std::string wrapped(std::string_view text, std::size_t width, std::string_view indent) {
  std::string result;
  std::size_t column = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    if (column > 0 && column + 1 + end > width) {
      result += fmt::format("\n{}", indent);
      column = 0;
    } else if (column > 0) {
      result += ' ';
      ++column;
    }
    result += text.substr(0, end);
    column += end;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return result;
}

void print_item(std::string_view name, std::string_view text) {
  const std::string indent(kNameWidth + 1, ' ');
  fmt::print("{} {}\n", bold(fmt::format("{:<{}}", name, kNameWidth)),
             wrapped(text, kWidth - indent.size(), indent));
}

void print_json(const tools::Json& json) {
  fmt::print("{}\n", json.dump(2, ' ', false, tools::Json::error_handler_t::replace));
}

Progress::Progress(std::string label)
    : label_(std::move(label)), enabled_(::isatty(STDERR_FILENO) == 1) {
  show(0);
}

Progress::~Progress() {
  if (enabled_) fmt::print(stderr, "\r\033[K");
}

void Progress::show(double share) {
  constexpr int kCells = 40;
  if (!enabled_) return;
  const int done = static_cast<int>(std::lround(share * kCells));
  fmt::print(stderr, "\r\033[K{} [{}{}] {:3.0f} %", label_, std::string(done, '='),
             std::string(kCells - done, ' '), share * 100);
  std::fflush(stderr);
}

}  // namespace parapet::cli
