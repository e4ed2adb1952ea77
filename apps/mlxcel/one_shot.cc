#include "one_shot.h"
#include "base/utf8.h"

#include <fmt/format.h>

#include "chat.h"
#include "interrupt.h"

namespace mlxcel {
namespace {

std::string result_json(const Context& context, const ResolvedModel& model, const GenerateResult& result) {
  JsonObject usage;
  const auto generated = static_cast<int64_t>(result.tokens.size());
  usage.set("prompt_tokens", result.prompt_tokens);
  usage.set("completion_tokens", generated);
  usage.set("total_tokens", result.prompt_tokens + generated);
  JsonArray tokens;
  for (const TokenId id : result.tokens) tokens.emplace_back(int64_t{id});
  JsonObject out;
  out.set("model", model.name);
  out.set("text", result.text);
  out.set("tokens", std::move(tokens));
  out.set("finish", finish_reason_name(result.finish));
  if (result.matched_stop) out.set("stop", *result.matched_stop);
  out.set("usage", std::move(usage));
  out.set("timings", timings_json(result));
  out.set("seed", *context.settings.integer("seed"));
  return to_json(JsonValue(std::move(out))) + "\n";
}

Result<std::vector<TokenId>> encode_question(const Settings& settings, const TextModel& text,
                                             const std::string& question) {
  if (settings.find("raw") != nullptr && settings.flag("raw")) return encode_raw(*text.tokenizer, question);
  MLXCEL_ASSIGN_OR_RETURN(const JsonObject variables, template_variables(settings));
  JsonArray messages;
  if (const auto system = settings.text("system")) messages.push_back(chat_message("system", *system));
  messages.push_back(chat_message("user", question));
  return encode_chat(text, messages, variables);
}

}  // namespace

Result<std::string> read_question(Context& context, const std::optional<std::string>& word) {
  const auto flag = context.settings.text("prompt");
  const auto file = context.settings.text("prompt-file");
  if (word && flag)
    return make_error(ErrorKind::kInvalidArgument, "two prompts are given", "", "-p TEXT or a word", "both");
  std::string text = flag ? *flag : word.value_or("");
  if (file) {
    MLXCEL_ASSIGN_OR_RETURN(const std::string more, read_text(*file));
    text += text.empty() ? more : "\n" + more;
  }
  const bool is_named = flag || file || word;
  if (!is_named && !context.terminal.stdin_is_terminal()) {
    MLXCEL_ASSIGN_OR_RETURN(text, read_text("-"));
  }
  if (!text.empty()) {
    if (!is_valid_utf8(text))
      context.terminal.note("warning: the prompt is not UTF-8; each wrong byte is read as U+FFFD");
    return text;
  }
  return make_error(ErrorKind::kInvalidArgument, "there is no prompt", "",
                    "-p TEXT, -f FILE, or text on standard input", "none");
}

Result<int> answer_once(Context& context, const ResolvedModel& model, const std::string& question) {
  MLXCEL_ASSIGN_OR_RETURN(SessionOptions session_settings, session_options(context.settings, model, 1));
  MLXCEL_ASSIGN_OR_RETURN(session_settings.chat_template, chat_template_override(context.settings));
  MLXCEL_ASSIGN_OR_RETURN(ModelSession session, load_session(context, model, session_settings, true));
  MLXCEL_ASSIGN_OR_RETURN(const GenerateOptions options, generate_options(context.settings, session.text));
  MLXCEL_ASSIGN_OR_RETURN(std::vector<TokenId> prompt,
                          encode_question(context.settings, session.text, question));
  const bool is_json = context.settings.find("json") != nullptr && context.settings.flag("json");
  ChatSequence sequence(session);
  const InterruptScope interruptible;
  MLXCEL_ASSIGN_OR_RETURN(const GenerateResult result,
                          sequence.answer(std::move(prompt), options, [&](std::string_view piece) {
                            if (!is_json) context.terminal.print_answer(piece);
                            return !InterruptScope::was_interrupted() && !context.terminal.output_failed();
                          }));
  context.terminal.print(is_json ? result_json(context, model, result) : "\n");
  if (context.is_verbose()) context.terminal.note(describe_speed(result));
  return InterruptScope::was_interrupted() ? exit_code_of(ErrorKind::kCancelled) : 0;
}

}  // namespace mlxcel
