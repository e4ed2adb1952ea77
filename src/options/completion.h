// Completion scripts of bash, zsh and fish, made from the tables of options/option_table.h: commands, flags,
// the values of choices; files and local models where a flag or a word takes them. Local models are asked for
// while completing (`mlxcel list --quiet`). Pure functions; any thread.
#pragma once

#include <string>
#include <string_view>

#include "options/option_table.h"

namespace mlxcel {

enum class CompletionKind { kNothing, kWords, kFiles, kModels };
// What can stand for the option's value; kNothing for free text, numbers and booleans.
CompletionKind value_completion(const OptionRow& row);
// What can stand for the command's first word that is no flag.
CompletionKind argument_completion(const CommandRow& row);

std::string bash_completion();
std::string zsh_completion();
std::string fish_completion();

}  // namespace mlxcel
