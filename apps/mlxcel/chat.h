// A conversation with a model: messages to prompt ids, and answers that reuse the rows of the turns before.
//
// Owner: run and generate. Threads: the main thread.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "runtime/model_session.h"

namespace mlxcel {

JsonValue chat_message(std::string_view role, std::string_view content);
// Renders with the model's template and encodes. An error says so when there is no template.
Result<std::vector<TokenId>> encode_chat(const TextModel& text, const JsonArray& messages,
                                         const JsonObject& variables);
// Text as it is, with the BOS the model expects, once.
Result<std::vector<TokenId>> encode_raw(const Tokenizer& tokenizer, std::string_view prompt);

// Keeps one sequence in the engine across turns. A new prompt keeps the rows of the tokens that it shares
// with the sequence from the start; only the rest is computed.
class ChatSequence {
 public:
  explicit ChatSequence(ModelSession& session) : session_(session) {}
  Result<GenerateResult> answer(std::vector<TokenId> prompt, const GenerateOptions& options,
                                const std::function<bool(std::string_view)>& on_text);
  void forget();  // gives the rows back

 private:
  Result<SequenceId> prepare(std::vector<TokenId> prompt, const GenerateOptions& options);
  ModelSession& session_;
  std::optional<SequenceId> sequence_;
  SamplingParams sampling_;  // of the sequence
};

}  // namespace mlxcel
