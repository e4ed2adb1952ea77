// From the words of the command line and the environment to one command with its settings. Everything a user
// can type wrongly is an Error of kInvalidArgument (exit code 2) that names the word and, where there is one,
// the nearest right one.
//
// Owner: values. Threads: pure functions of their arguments.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "options/settings.h"

namespace mlxcel {

struct CommandLine {
  std::optional<Command> command;  // nullopt: help about the program as a whole
  Settings settings;
  std::vector<std::string> arguments;  // words that are no flag
  bool wants_help = false;
  std::string help_topic;  // of --help=TOPIC; may be empty
};

// One line for each of `names` (of all environment variables) that begins like ours and is none of ours: a
// misspelt variable would otherwise do nothing without a word. MLXCEL_TEST_... belong to the tests.
std::vector<std::string> unknown_variables(std::span<const std::string> names);

// `arguments` without the program's name. Reads the file of --config.
Result<CommandLine> parse_command_line(std::span<const std::string> arguments,
                                       const EnvironmentLookup& environment);

}  // namespace mlxcel
