#pragma once

#include <CLI/CLI.hpp>
#include <functional>

// The subcommands of the program, a file each.

namespace parapet::cli {

// What the program gives back to the shell.
enum ExitCode : int {
  kOk = 0,
  kWrong = 1,  // a result is not what it should be
  kError = 2,  // wrong usage, bad input, or the machine failed
};

struct Command {
  CLI::App* app;
  std::function<int()> run;  // gives the exit code, or throws Error
};

Command add_info(CLI::App& program);
Command add_demo(CLI::App& program);
Command add_plan(CLI::App& program);
Command add_replay(CLI::App& program);
Command add_bench(CLI::App& program);
Command add_precompile(CLI::App& program);
Command add_cache(CLI::App& program);

}  // namespace parapet::cli
