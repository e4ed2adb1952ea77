// mlxcel run: a conversation in the terminal, or one answer when there is a prompt or no terminal.
#include "commands.h"
#include "one_shot.h"
#include "repl.h"

namespace mlxcel {

Result<int> run_command(Context& context) {
  // With -m the first word is the prompt; without, it is the model.
  std::vector<std::string> words = context.arguments;
  std::optional<std::string> reference = context.settings.text("model");
  const Setting* flag = context.settings.find("model");
  if (!words.empty() && (flag == nullptr || flag->origin != Origin::kFlag)) {
    reference = words.front();
    words.erase(words.begin());
  }
  if (words.size() > 1) {
    return make_error(ErrorKind::kInvalidArgument, "too many arguments of 'mlxcel run'", "", "one prompt",
                      "'" + words[1] + "'");
  }
  MLXCEL_ASSIGN_OR_RETURN(const ResolvedModel model, find_model(context, reference));
  const auto word = words.empty() ? std::nullopt : std::optional(words[0]);
  const bool has_prompt = word || context.settings.text("prompt") || context.settings.text("prompt-file");
  if (!has_prompt && context.terminal.stdin_is_terminal()) return run_repl(context, model);
  MLXCEL_ASSIGN_OR_RETURN(const std::string question, read_question(context, word));
  return answer_once(context, model, question);
}

}  // namespace mlxcel
