#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tools/json/json.h"

// What people see: numbers in their units, emphasis and progress where there is a terminal.

namespace parapet::cli {

// Emphasis on standard output, when it is a terminal and NO_COLOR is not set.
std::string bold(std::string_view text);
std::string faint(std::string_view text);
std::string green(std::string_view text);
std::string red(std::string_view text);

std::string count_text(std::int64_t count);                         // "17,580"
std::string count_text(std::int64_t count, std::string_view noun);  // "1 head", "2 heads"
std::string bytes_text(double bytes);                               // "470 MB"
std::string flop_text(double flop);                                 // "15.66 TFLOP"
std::string rate_text(double gflops);                               // "164 GFLOP/s"
std::string seconds_text(double seconds);                           // "10.9 s", "54.4 ms"
std::string percent_text(double share);                             // "86 %"

// Breaks a text into lines of at most `width` characters, each but the first behind `indent`.
std::string wrapped(std::string_view text, std::size_t width, std::string_view indent);

// A line "<name>   <text>", wrapped under itself, on standard output.
void print_item(std::string_view name, std::string_view text);

void print_json(const tools::Json& json);

// A bar on standard error, when that is a terminal; nothing otherwise. It is gone when the object
// is.
class Progress {
 public:
  explicit Progress(std::string label);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void show(double share);

 private:
  std::string label_;
  bool enabled_;
};

}  // namespace parapet::cli
