#include <fmt/format.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "commands.h"
#include "options.h"
#include "parapet/error.h"
#include "parapet/info.h"

namespace parapet::cli {
namespace {

constexpr const char* kBegin =
    "Begin with `parapet demo`. `parapet COMMAND --help` explains a command.";

int complain(std::string_view message) {
  // One line, whatever a library put into its message.
  std::string line(message);
  for (char& c : line) {
    if (c == '\n') c = ' ';
  }
  std::fflush(stdout);
  fmt::print(stderr, "parapet: {}\n", line);
  return kError;
}

int run(int argc, char** argv) {
  CLI::App program("Exact fused attention that cannot leave its tensors.", "parapet");
  program.set_version_flag("--version", fmt::format("parapet {}", version()));
  program.footer(kExitCodes);  // which the commands inherit
  program.failure_message(CLI::FailureMessage::simple);
  const std::vector<Command> commands{
      add_demo(program),  add_info(program),       add_plan(program), add_replay(program),
      add_bench(program), add_precompile(program), add_cache(program)};
  program.footer(fmt::format("{}\n\n{}", kBegin, kExitCodes));
  try {
    program.parse(argc, argv);
  } catch (const CLI::Success& help_or_version) {
    return program.exit(help_or_version);
  } catch (const CLI::ParseError& error) {
    std::string help = "parapet";
    for (const CLI::App* command : program.get_subcommands()) help += ' ' + command->get_name();
    return complain(fmt::format("{} (see {} --help)", error.what(), help));
  }
  for (const Command& command : commands) {
    if (command.app->parsed()) return command.run();
  }
  fmt::print(stderr, "{}", program.help());
  return kError;
}

}  // namespace
}  // namespace parapet::cli

int main(int argc, char** argv) {
  using parapet::cli::complain;
  // A reader that goes away, as `head` does, ends the program without a word.
  std::signal(SIGPIPE, SIG_DFL);
  int code = parapet::cli::kError;
  try {
    code = parapet::cli::run(argc, argv);
    if (std::fflush(stdout) != 0) {
      code = complain(fmt::format("cannot write to standard output: {}", std::strerror(errno)));
    }
  } catch (const parapet::Error& error) {
    code = complain(error.what());
  } catch (const std::bad_alloc&) {
    code = complain("out of memory");
  } catch (const std::exception& error) {
    code = complain(error.what());
  }
  return code;
}
