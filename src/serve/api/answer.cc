#include "serve/api/answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "serve/api/api_error.h"

namespace mlxcel {

std::string_view openai_finish_reason(FinishReason reason) {
  switch (reason) {
    case FinishReason::kMaxTokens:
    case FinishReason::kContext:
      return "length";
    case FinishReason::kCancelled:
      return "cancelled";
    case FinishReason::kError:
      return "error";
    default:
      return "stop";
  }
}

std::string sse_event(const JsonValue& value) { return "data: " + to_json(value) + "\n\n"; }

std::string sse_error(const Error& error) { return sse_event(api_error_from(error).to_json()); }

Answer::Answer(AnswerOptions options) : options_(std::move(options)) {
  const size_t prompts = std::max<size_t>(1, options_.prompt_texts.size());
  choices_.resize(prompts * static_cast<size_t>(options_.num_choices));
}

Answer::Choice& Answer::choice_of(int prompt, const GenerationEvent& event) {
  const int index = index_of(prompt, event);
  MLXCEL_CHECK(index >= 0 && static_cast<size_t>(index) < choices_.size());
  return choices_[static_cast<size_t>(index)];
}

std::string Answer::token_text(TokenId id) const {
  const TokenId one[] = {id};
  return options_.tokenizer->decode(one, false);
}

namespace {

// A log-probability as the shortest decimal of its f32: JsonValue holds doubles, and 0.1f as a double would
// print sixteen digits. The decimal text is parsed back, so what is printed is that text.
JsonValue logprob_value(float value) {
  std::string text;
  write_json_float(text, value);
  return text == "null" ? JsonValue() : JsonValue(std::strtod(text.c_str(), nullptr));
}

JsonArray bytes_of(std::string_view text) {
  JsonArray out;
  for (const char c : text) out.emplace_back(static_cast<int>(static_cast<unsigned char>(c)));
  return out;
}

JsonObject chat_logprob(const std::string& token, std::string_view bytes, float logprob) {
  JsonObject o;
  o.set("token", token);
  o.set("logprob", logprob_value(logprob));
  o.set("bytes", bytes_of(bytes));
  return o;
}

}  // namespace

void Answer::add_token(const GeneratedToken& token, Choice& choice) {
  if (options_.stream.return_token_ids) choice.token_ids.emplace_back(int64_t{token.id});
  if (!options_.wants_logprobs || !token.logprobs) return;
  if (options_.kind == AnswerKind::kChat) {
    JsonObject entry = chat_logprob(token_text(token.id), token.bytes, token.logprobs->chosen);
    JsonArray top;
    for (const TokenLogprob& t : token.logprobs->top) {
      const std::string text = token_text(t.token);
      top.emplace_back(chat_logprob(text, text, t.logprob));
    }
    entry.set("top_logprobs", std::move(top));
    choice.logprobs.emplace_back(std::move(entry));
    return;
  }
  const std::string text = token_text(token.id);
  choice.tokens.emplace_back(text);
  choice.token_logprobs.push_back(logprob_value(token.logprobs->chosen));
  JsonObject top;
  for (const TokenLogprob& t : token.logprobs->top) top.set(token_text(t.token), logprob_value(t.logprob));
  choice.top_logprobs.emplace_back(std::move(top));
  choice.text_offsets.emplace_back(choice.text_offset);
  choice.text_offset += static_cast<int64_t>(text.size());
}

// The prompt as the first part of the answer; its first token has no log-probability.
void Answer::add_echo(int prompt, const GenerationEvent& event, Choice& choice) {
  if (!options_.echo || choice.started) return;
  choice.text = options_.prompt_texts[static_cast<size_t>(prompt)];
  if (!options_.wants_logprobs) return;
  const std::vector<TokenId>& ids = options_.prompt_tokens[static_cast<size_t>(prompt)];
  for (size_t i = 0; i < ids.size(); ++i) {
    if (i > 0 && i - 1 < event.prompt_logprobs.size()) {
      add_token(GeneratedToken{ids[i], {}, event.prompt_logprobs[i - 1]}, choice);
      continue;
    }
    const std::string text = token_text(ids[i]);
    choice.tokens.emplace_back(text);
    choice.token_logprobs.emplace_back();
    choice.top_logprobs.emplace_back();
    choice.text_offsets.emplace_back(choice.text_offset);
    choice.text_offset += static_cast<int64_t>(text.size());
  }
}

void Answer::absorb(int prompt, const GenerationEvent& event, Choice& choice) {
  add_echo(prompt, event, choice);
  choice.text += event.text;
  for (const GeneratedToken& token : event.tokens) add_token(token, choice);
  if (event.error && !error_) error_ = event.error;
  if (event.finish == FinishReason::kNone) return;
  choice.finish = std::string(openai_finish_reason(event.finish));
  choice.ended = true;
  ++num_ended_;
  if (event.choice == 0) {
    prompt_tokens_ += event.prompt_tokens;  // the prompt counts once, whatever n is
    cached_tokens_ += event.cached_tokens;
  }
  generated_tokens_ += event.generated_tokens;
  last_timings_ = timings(event);
}

JsonValue Answer::take_logprobs(Choice& choice) const {
  if (!options_.wants_logprobs) return {};
  JsonObject out;
  if (options_.kind == AnswerKind::kChat) {
    out.set("content", std::exchange(choice.logprobs, {}));
    out.set("refusal", JsonValue());
  } else {
    out.set("tokens", std::exchange(choice.tokens, {}));
    out.set("token_logprobs", std::exchange(choice.token_logprobs, {}));
    out.set("top_logprobs", std::exchange(choice.top_logprobs, {}));
    out.set("text_offset", std::exchange(choice.text_offsets, {}));
  }
  return JsonValue(std::move(out));
}

JsonValue Answer::usage() const {
  JsonObject out, prompt_details, completion_details;
  out.set("prompt_tokens", prompt_tokens_);
  out.set("completion_tokens", generated_tokens_);
  out.set("total_tokens", prompt_tokens_ + generated_tokens_);
  prompt_details.set("cached_tokens", cached_tokens_);
  completion_details.set("reasoning_tokens", 0);
  out.set("prompt_tokens_details", std::move(prompt_details));
  out.set("completion_tokens_details", std::move(completion_details));
  return JsonValue(std::move(out));
}

// llama.cpp's keys.
JsonValue Answer::timings(const GenerationEvent& event) const {
  const RequestTimings& t = event.timings;
  const double prompt_ms = std::max(0.0, t.first_token - t.first_scheduled) * 1e3;
  const double predicted_ms = std::max(0.0, t.finished - t.first_token) * 1e3;
  const int64_t computed = event.prompt_tokens - event.cached_tokens;
  const auto rate = [](int64_t n, double ms) { return ms > 0 ? static_cast<double>(n) * 1e3 / ms : 0.0; };
  JsonObject out;
  out.set("cache_n", event.cached_tokens);
  out.set("prompt_n", computed);
  out.set("prompt_ms", prompt_ms);
  out.set("prompt_per_second", rate(computed, prompt_ms));
  out.set("predicted_n", event.generated_tokens);
  out.set("predicted_ms", predicted_ms);
  // The first token belongs to the prompt's time.
  out.set("predicted_per_second", rate(std::max<int64_t>(0, event.generated_tokens - 1), predicted_ms));
  return JsonValue(std::move(out));
}

JsonObject Answer::envelope(std::string_view object) const {
  JsonObject out;
  out.set("id", options_.id);
  out.set("object", object);
  out.set("created", options_.created);
  out.set("model", options_.model);
  out.set("system_fingerprint", "mlxcel");
  return out;
}

std::string Answer::chunk(int index, JsonValue delta_or_text, JsonValue finish, JsonValue logprobs,
                          JsonArray token_ids, const GenerationEvent* event) const {
  const bool chat = options_.kind == AnswerKind::kChat;
  JsonObject choice;
  choice.set("index", index);
  choice.set(chat ? "delta" : "text", std::move(delta_or_text));
  choice.set("logprobs", std::move(logprobs));
  choice.set("finish_reason", std::move(finish));
  if (!token_ids.empty()) choice.set("token_ids", std::move(token_ids));
  JsonObject out = envelope(chat ? "chat.completion.chunk" : "text_completion");
  out.set("choices", JsonArray{JsonValue(std::move(choice))});
  if (options_.stream.include_usage) out.set("usage", JsonValue());
  if (event != nullptr && (options_.stream.timings_per_token || event->finish != FinishReason::kNone)) {
    out.set("timings", timings(*event));
  }
  return sse_event(JsonValue(std::move(out)));
}

std::string Answer::on_stream_event(int prompt, const GenerationEvent& event) {
  Choice& choice = choice_of(prompt, event);
  const int index = index_of(prompt, event);
  const bool chat = options_.kind == AnswerKind::kChat;
  const bool first = !choice.started;
  absorb(prompt, event, choice);
  choice.started = true;
  std::string out;
  if (first && chat) {
    JsonObject role;
    role.set("role", "assistant");
    role.set("content", "");
    out += chunk(index, JsonValue(std::move(role)), {}, {}, {}, nullptr);
  }
  const std::string text = std::exchange(choice.text, {});
  const bool has_logprobs = !choice.logprobs.empty() || !choice.tokens.empty();
  if (!text.empty() || has_logprobs || !choice.token_ids.empty()) {
    JsonValue body(text);
    if (chat) {
      JsonObject delta;
      if (!text.empty()) delta.set("content", text);  // a delta is never an empty string
      body = JsonValue(std::move(delta));
    }
    JsonValue logprobs = has_logprobs ? take_logprobs(choice) : JsonValue();
    const bool done = event.finish != FinishReason::kNone;
    out += chunk(index, std::move(body), {}, std::move(logprobs), std::exchange(choice.token_ids, {}),
                 done ? nullptr : &event);
  }
  if (event.error) {
    out += sse_error(*event.error);
  } else if (event.finish != FinishReason::kNone) {
    out += chunk(index, chat ? JsonValue(JsonObject()) : JsonValue(""), choice.finish, {}, {}, &event);
  }
  if (num_ended_ == choices_.size() && event.finish != FinishReason::kNone && !error_) {
    if (options_.stream.include_usage) {
      JsonObject last = envelope(chat ? "chat.completion.chunk" : "text_completion");
      last.set("choices", JsonArray());
      last.set("usage", usage());
      out += sse_event(JsonValue(std::move(last)));
    }
    out += "data: [DONE]\n\n";
  }
  return out;
}

bool Answer::on_event(int prompt, const GenerationEvent& event) {
  Choice& choice = choice_of(prompt, event);
  absorb(prompt, event, choice);
  choice.started = true;
  return num_ended_ == choices_.size();
}

JsonValue Answer::response() const {
  const bool chat = options_.kind == AnswerKind::kChat;
  JsonObject out = envelope(chat ? "chat.completion" : "text_completion");
  JsonArray list;
  for (size_t i = 0; i < choices_.size(); ++i) {
    Choice choice = choices_[i];
    JsonObject item;
    item.set("index", static_cast<int64_t>(i));
    if (chat) {
      JsonObject message;
      message.set("role", "assistant");
      message.set("content", choice.text);
      message.set("refusal", JsonValue());
      item.set("message", std::move(message));
    } else {
      item.set("text", choice.text);
    }
    item.set("logprobs", take_logprobs(choice));
    item.set("finish_reason", choice.finish);
    if (options_.stream.return_token_ids) item.set("token_ids", std::move(choice.token_ids));
    list.emplace_back(std::move(item));
  }
  out.set("choices", std::move(list));
  out.set("usage", usage());
  out.set("timings", last_timings_);
  return JsonValue(std::move(out));
}

}  // namespace mlxcel
