// mlxcel generate: one answer and out. With the chat template unless --raw.
#include "commands.h"
#include "one_shot.h"

namespace mlxcel {

Result<int> generate_command(Context& context) {
  MLXCEL_ASSIGN_OR_RETURN(const ResolvedModel model, find_model(context, context.settings.text("model")));
  const auto word = context.arguments.empty() ? std::nullopt : std::optional(context.arguments[0]);
  MLXCEL_ASSIGN_OR_RETURN(const std::string question, read_question(context, word));
  return answer_once(context, model, question);
}

}  // namespace mlxcel
