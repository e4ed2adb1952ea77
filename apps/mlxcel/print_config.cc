// --print-config: the settings that a command would run with, and where each came from.
#include <fmt/format.h>

#include "commands.h"

namespace mlxcel {
namespace {

// The model that the command line names, by flag or as its first word.
std::optional<std::string> named_model(const Context& context, Command command) {
  const Setting* model = context.settings.find("model");
  const bool takes_word = command_row(command).arguments.starts_with("[MODEL]");
  const bool is_flag = model != nullptr && model->origin == Origin::kFlag;
  if (takes_word && !is_flag && !context.arguments.empty()) return context.arguments[0];
  return context.settings.text("model");
}

Status read_model_defaults(Context& context, Command command, const std::string& reference) {
  MLXCEL_ASSIGN_OR_RETURN(const ResolvedModel model, find_model(context, reference));
  MLXCEL_ASSIGN_OR_RETURN(const TextModel text, load_text_model(model.path));
  apply_model_defaults(context.settings, text.defaults);
  if (command == Command::kServe) apply_greedy_default(context.settings, text.defaults);
  return ok_status();
}

}  // namespace

Result<int> print_configuration(Context& context, Command command) {
  const auto reference = named_model(context, command);
  if (belongs_to(*find_option("temp"), command) && reference) {
    if (const Status read = read_model_defaults(context, command, *reference); !read.ok()) {
      context.terminal.note("note: generation_config.json is not included: " + read.error().one_line());
    }
  }
  context.terminal.print(describe_settings(context.settings, false));
  return 0;
}

}  // namespace mlxcel
