#pragma once

#include <CLI/CLI.hpp>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

// Options that several subcommands have.

namespace parapet::cli {

// Below the help of each command.
inline constexpr const char* kExitCodes =
    "Exit codes: 0 all is well, 1 a result is not what it should be,\n"
    "2 wrong usage, bad input or a failure of the machine.";

inline constexpr const char* kWorkloadHelp = "A workload: a file, or one of the names below";
inline constexpr const char* kRowsHelp = "Cases of the workload, from 0: 0,2,5-7 (default: all)";

// The most that an option that counts something may say.
inline constexpr std::int64_t kMaxCount = INT32_MAX;

// The same for a command that takes workloads: lists their names.
std::string workload_footer();

// The rows that `text` names, in its order; all `count` of them when it is empty. Throws
// Error(kInvalidArgument).
std::vector<std::size_t> select_rows(const std::string& text, std::size_t count);

void add_threads(CLI::App& app, int& threads);

}  // namespace parapet::cli
