// mlxcel completion SHELL, mlxcel man PAGE: texts made from the option table.
#include "options/completion.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/suggest.h"
#include "commands.h"
#include "options/reference.h"

namespace mlxcel {
namespace {

// The command's one word, which is one of those that its row names.
Result<std::string> chosen_word(const Context& context, Command command) {
  const CommandRow& row = command_row(command);
  const std::vector<std::string_view> views = split_words(row.argument_words);
  const std::vector<std::string> words(views.begin(), views.end());
  const std::string found = context.arguments.empty() ? "" : context.arguments[0];
  if (std::find(words.begin(), words.end(), found) != words.end()) return found;
  const auto nearest = closest_word(found, words);
  return make_error(ErrorKind::kInvalidArgument, fmt::format("mlxcel {} needs a word", row.name), "",
                    fmt::format("one of {}", fmt::join(words, ", ")),
                    found.empty() ? "nothing" : "'" + found + "'",
                    nearest && !found.empty() ? fmt::format("did you mean '{}'?", *nearest) : "");
}

}  // namespace

Result<int> completion_command(Context& context) {
  MLXCEL_ASSIGN_OR_RETURN(const std::string shell, chosen_word(context, Command::kCompletion));
  context.terminal.print(shell == "bash"  ? bash_completion()
                         : shell == "zsh" ? zsh_completion()
                                          : fish_completion());
  return 0;
}

Result<int> man_command(Context& context) {
  MLXCEL_ASSIGN_OR_RETURN(const std::string page, chosen_word(context, Command::kMan));
  context.terminal.print(page == "mlxcel"          ? manual_page()
                         : page == "mlxcel-server" ? server_manual_page()
                                                   : reference_markdown());
  return 0;
}

}  // namespace mlxcel
