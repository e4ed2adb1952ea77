#include "chat.h"

#include <algorithm>

namespace mlxcel {
namespace {

// A sequence keeps the sampler it was made with, so rows can be kept only while these stay the same.
bool same_sampling(const SamplingParams& a, const SamplingParams& b) {
  const auto fields = [](const SamplingParams& p) {
    return std::tie(p.temperature, p.top_k, p.top_p, p.min_p, p.typical_p, p.top_n_sigma, p.xtc_probability,
                    p.xtc_threshold, p.repetition_penalty, p.repetition_window, p.frequency_penalty,
                    p.presence_penalty, p.dry_multiplier, p.dry_base, p.dry_allowed_length, p.dry_window,
                    p.dry_breakers, p.seed, p.choice_index, p.logit_bias, p.suppress);
  };
  return fields(a) == fields(b);
}

}  // namespace

JsonValue chat_message(std::string_view role, std::string_view content) {
  JsonObject message;
  message.set("role", role);
  message.set("content", content);
  return message;
}

Result<std::vector<TokenId>> encode_chat(const TextModel& text, const JsonArray& messages,
                                         const JsonObject& variables) {
  if (text.chat_template == nullptr) {
    return make_error(
        ErrorKind::kNotFound, "the model has no chat template", text.checkpoint->path,
        "chat_template.jinja, or chat_template in tokenizer_config.json or in the GGUF metadata", "none",
        "give one with --chat-template-file, or complete text with 'mlxcel generate --raw'");
  }
  RenderRequest request;
  request.messages = messages;
  request.extra = variables;
  request.special_tokens = text.special_tokens;
  MLXCEL_ASSIGN_OR_RETURN(const RenderedPrompt prompt, text.chat_template->render(request));
  return encode_prompt(*text.tokenizer, prompt);
}

Result<std::vector<TokenId>> encode_raw(const Tokenizer& tokenizer, std::string_view prompt) {
  std::vector<TokenId> ids = tokenizer.encode(prompt, {.add_special = true, .parse_special = true});
  // Text that spells the BOS itself would get two.
  if (ids.size() >= 2 && tokenizer.bos() && ids[0] == *tokenizer.bos() && ids[1] == ids[0])
    ids.erase(ids.begin());
  if (ids.empty()) {
    return make_error(ErrorKind::kInvalidArgument, "the prompt is empty", "", "at least one token", "none",
                      "give text with -p");
  }
  return ids;
}

Result<SequenceId> ChatSequence::prepare(std::vector<TokenId> prompt, const GenerateOptions& options) {
  Engine& engine = *session_.engine;
  if (sequence_ && same_sampling(sampling_, options.sampling)) {
    const std::span<const TokenId> known = engine.tokens(*sequence_);
    const size_t limit =
        std::min(known.size(), prompt.size() - 1);  // the last token must be computed: it makes the next
    const auto shared = static_cast<size_t>(
        std::mismatch(known.begin(), known.begin() + static_cast<ptrdiff_t>(limit), prompt.begin()).first -
        known.begin());
    if (shared > 0 && engine.truncate(*sequence_, static_cast<int64_t>(shared)).ok()) {
      const Status extended = engine.extend(*sequence_, std::span(prompt).subspan(shared), options.stop);
      if (extended.ok()) return *sequence_;
      forget();
      return extended.error();
    }
  }
  forget();
  MLXCEL_ASSIGN_OR_RETURN(sequence_, start_sequence(session_, std::move(prompt), options));
  sampling_ = options.sampling;
  return *sequence_;
}

Result<GenerateResult> ChatSequence::answer(std::vector<TokenId> prompt, const GenerateOptions& options,
                                            const std::function<bool(std::string_view)>& on_text) {
  if (prompt.empty())
    return make_error(ErrorKind::kInvalidArgument, "the prompt is empty", "", "at least one token", "none");
  MLXCEL_ASSIGN_OR_RETURN(const SequenceId sequence, prepare(std::move(prompt), options));
  return generate(session_, sequence, options, on_text);
}

void ChatSequence::forget() {
  if (sequence_) session_.engine->remove(*sequence_);
  sequence_.reset();
}

}  // namespace mlxcel
