// The shapes of answers: from the serving loop's events to chat.completion, chat.completion.chunk and
// text_completion objects. One Answer per HTTP request; it may cover several prompts (text completions) and
// choices.
//
// Owner: the handler's state. Threads: the I/O thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "runtime/serving.h"
#include "serve/api/generation_fields.h"

namespace mlxcel {

enum class AnswerKind { kChat, kCompletion };

struct AnswerOptions {
  AnswerKind kind = AnswerKind::kChat;
  StreamOptions stream;
  std::string id;  // "chatcmpl-..." or "cmpl-..."
  std::string model;
  int64_t created = 0;
  int num_choices = 1;  // of each prompt
  bool wants_logprobs = false;
  int top_logprobs = 0;
  bool echo = false;
  std::vector<std::string> prompt_texts;            // echo: per prompt
  std::vector<std::vector<TokenId>> prompt_tokens;  // echo with logprobs: per prompt
  std::shared_ptr<const Tokenizer> tokenizer;
};

class Answer {
 public:
  explicit Answer(AnswerOptions options);

  // Streaming: the SSE bytes for this event ("" when there is nothing to say yet), the last call's including
  // usage and [DONE]. `prompt`: which prompt the event belongs to.
  std::string on_stream_event(int prompt, const GenerationEvent& event);
  // Not streaming: collects. True when every choice of every prompt has ended.
  bool on_event(int prompt, const GenerationEvent& event);
  JsonValue response() const;
  // The first error of a choice, when one failed before anything was said (so that a status can still be
  // chosen).
  const std::optional<Error>& error() const { return error_; }

 private:
  struct Choice {
    std::string text, finish;
    JsonArray logprobs;                                            // chat: content entries
    JsonArray tokens, token_logprobs, top_logprobs, text_offsets;  // completions' legacy shape
    JsonArray token_ids;
    int64_t text_offset = 0;
    bool started = false, ended = false;
  };
  Choice& choice_of(int prompt, const GenerationEvent& event);
  int index_of(int prompt, const GenerationEvent& event) const {
    return prompt * options_.num_choices + event.choice;
  }
  void absorb(int prompt, const GenerationEvent& event, Choice& choice);
  void add_echo(int prompt, const GenerationEvent& event, Choice& choice);
  void add_token(const GeneratedToken& token, Choice& choice);
  JsonValue take_logprobs(Choice& choice) const;
  JsonValue usage() const;
  JsonValue timings(const GenerationEvent& event) const;
  JsonObject envelope(std::string_view object) const;
  std::string chunk(int index, JsonValue delta_or_text, JsonValue finish, JsonValue logprobs,
                    JsonArray token_ids, const GenerationEvent* event) const;
  std::string token_text(TokenId id) const;

  AnswerOptions options_;
  std::vector<Choice> choices_;
  int64_t prompt_tokens_ = 0, cached_tokens_ = 0, generated_tokens_ = 0;
  size_t num_ended_ = 0;
  std::optional<Error> error_;
  JsonValue last_timings_;
};

// "stop", "length", ... as OpenAI spells it.
std::string_view openai_finish_reason(FinishReason reason);
std::string sse_event(const JsonValue& value);
std::string sse_error(const Error& error);

}  // namespace mlxcel
