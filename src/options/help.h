// The text of --help, made from the tables of options/option_table.h.
// Pure functions; any thread.
#pragma once

#include <string>
#include <string_view>

#include "base/error.h"
#include "options/option_table.h"

namespace mlxcel {

// One line per command, two examples first.
std::string program_help_text();
// Topic: empty (the options most people need), "all", a group's name, or any word to search for. An unknown
// topic is kInvalidArgument naming the groups.
Result<std::string> command_help_text(Command command, std::string_view topic);
// Options of every command whose names or help hold `topic`.
Result<std::string> program_topic_text(std::string_view topic);

}  // namespace mlxcel
