#pragma once

#include <CLI/CLI.hpp>
#include <cstddef>
#include <string>
#include <vector>

// Options that several subcommands have.

namespace parapet::cli {

// "A file, or one of cpu-grid, ..., which come with parapet".
std::string workload_help();

inline constexpr const char* kRowsHelp =
    "Which cases of the workload, from 0: 0,2,5-7 (default: all)";

// The rows that `text` names, in its order; all `count` of them when it is empty. Throws
// Error(kInvalidArgument).
std::vector<std::size_t> select_rows(const std::string& text, std::size_t count);

void add_threads(CLI::App& app, int& threads);

}  // namespace parapet::cli
