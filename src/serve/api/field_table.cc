#include "serve/api/field_table.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"

namespace mlxcel {

namespace {

constexpr FieldTreatment kHonoured = FieldTreatment::kHonoured, kInert = FieldTreatment::kInert,
                         kNeutral = FieldTreatment::kNeutralOnly;

// name, chat, completion, treatment, neutral values, help
constexpr FieldRow kTable[] = {
    {"model", true, true, kHonoured, "", "any name is accepted unless the server runs with --strict-model"},
    {"messages", true, false, kHonoured, "",
     "array of {role, content}; content is a string or an array of text parts"},
    {"prompt", false, true, kHonoured, "",
     "a string, an array of strings, token ids, or an array of token id arrays"},
    {"stream", true, true, kHonoured, "", "server-sent events"},
    {"stream_options", true, true, kHonoured, "", "{include_usage: boolean}"},
    {"max_tokens", true, true, kHonoured, "", "at least 0; absent: until the context is full; -1 likewise"},
    {"max_completion_tokens", true, false, kHonoured, "", "newer spelling of max_tokens"},
    {"n_predict", true, true, kHonoured, "", "llama.cpp's spelling of max_tokens"},
    {"temperature", true, true, kHonoured, "", "0 is greedy"},
    {"top_p", true, true, kHonoured, "", "1 is off"},
    {"top_k", true, true, kHonoured, "", "0 and -1 are off"},
    {"min_p", true, true, kHonoured, "", "0 is off"},
    {"typical_p", true, true, kHonoured, "", "1 is off"},
    {"top_n_sigma", true, true, kHonoured, "", "0 and below are off"},
    {"xtc_probability", true, true, kHonoured, "", "0 is off"},
    {"xtc_threshold", true, true, kHonoured, "", "0 to 1"},
    {"repetition_penalty", true, true, kHonoured, "", "1 is off"},
    {"repeat_penalty", true, true, kHonoured, "", "llama.cpp's spelling of repetition_penalty"},
    {"repeat_last_n", true, true, kHonoured, "", "window of repetition_penalty in tokens; -1: all"},
    {"frequency_penalty", true, true, kHonoured, "", "over all generated tokens"},
    {"presence_penalty", true, true, kHonoured, "", "over all generated tokens"},
    {"dry_multiplier", true, true, kHonoured, "", "0 is off"},
    {"dry_base", true, true, kHonoured, "", "1.75"},
    {"dry_allowed_length", true, true, kHonoured, "", "2"},
    {"dry_penalty_last_n", true, true, kHonoured, "", "-1: all"},
    {"dry_sequence_breakers", true, true, kHonoured, "", "strings whose tokens end a repetition"},
    {"seed", true, true, kHonoured, "", "the same seed gives the same answer, whatever else the server does"},
    {"stop", true, true, kHonoured, "", "a string or up to 32 strings"},
    {"stop_token_ids", true, true, kHonoured, "", "array of token ids"},
    {"include_stop_str_in_output", true, true, kHonoured, "", "boolean"},
    {"ignore_eos", true, true, kHonoured, "", "boolean"},
    {"min_tokens", true, true, kHonoured, "", "no end token before so many"},
    {"n", true, true, kHonoured, "", "number of choices, 1 to 128"},
    {"best_of", false, true, kNeutral, "1", "only best_of = 1 is offered; use n"},
    {"logit_bias", true, true, kHonoured, "", "{token id: -100..100}"},
    {"logprobs", true, true, kHonoured, "", "chat: boolean; completions: number of alternatives"},
    {"top_logprobs", true, false, kHonoured, "", "0 to 20"},
    {"prompt_logprobs", true, true, kNeutral, "0", "use echo with logprobs on /v1/completions"},
    {"echo", false, true, kHonoured, "", "the prompt is part of the answer"},
    {"suffix", false, true, kNeutral, "\"\"", "infilling is not offered"},
    {"skip_special_tokens", true, true, kHonoured, "", "boolean, default true"},
    {"return_token_ids", true, true, kHonoured, "", "adds token_ids to each choice"},
    {"return_tokens", true, true, kHonoured, "", "llama.cpp's spelling of return_token_ids"},
    {"cache_prompt", true, true, kHonoured, "", "false: do not reuse cached rows"},
    {"cache_salt", true, true, kHonoured, "", "separates the prefix cache of tenants"},
    {"prompt_cache_key", true, true, kInert, "", "cache entries are found by content"},
    {"priority", true, true, kHonoured, "", "higher runs first"},
    {"chat_template_kwargs", true, false, kHonoured, "", "passed to the template"},
    {"add_generation_prompt", true, false, kHonoured, "", "boolean, default true"},
    {"continue_final_message", true, false, kHonoured, "",
     "continue the last message instead of answering it"},
    {"reasoning_effort", true, false, kHonoured, "", "passed to the template"},
    {"documents", true, false, kHonoured, "", "passed to the template"},
    {"add_special_tokens", true, true, kHonoured, "",
     "completions: whether the tokenizer adds its own (default true)"},
    {"timings_per_token", true, true, kHonoured, "", "adds llama.cpp's timings to each chunk"},
    {"id_slot", true, true, kNeutral, "-1", "slots are chosen by the scheduler"},
    {"tools", true, false, kNeutral, "[]", "tool calls are not offered yet"},
    {"tool_choice", true, false, kNeutral, "\"none\"|\"auto\"", "tool calls are not offered yet"},
    {"parallel_tool_calls", true, false, kInert, "", "has no meaning without tools"},
    {"functions", true, false, kNeutral, "[]", "tool calls are not offered yet"},
    {"function_call", true, false, kNeutral, "\"none\"|\"auto\"", "tool calls are not offered yet"},
    {"response_format", true, true, kNeutral, R"({"type":"text"})", "structured output is not offered yet"},
    {"grammar", true, true, kNeutral, "\"\"", "structured output is not offered yet"},
    {"json_schema", true, true, kNeutral, "{}", "structured output is not offered yet"},
    {"structured_outputs", true, true, kNeutral, "{}", "structured output is not offered yet"},
    {"guided_json", true, true, kNeutral, "", "structured output is not offered yet"},
    {"guided_regex", true, true, kNeutral, "", "structured output is not offered yet"},
    {"guided_choice", true, true, kNeutral, "[]", "structured output is not offered yet"},
    {"guided_grammar", true, true, kNeutral, "", "structured output is not offered yet"},
    {"modalities", true, false, kNeutral, R"(["text"])", "only text is offered"},
    {"audio", true, false, kNeutral, "", "only text is offered"},
    {"prediction", true, false, kNeutral, "", "predicted outputs are not offered; see --draft-kind ngram"},
    {"web_search_options", true, false, kNeutral, "", "there is no web search"},
    {"verbosity", true, false, kNeutral, "\"medium\"",
     "pass it in chat_template_kwargs if the template knows it"},
    {"mirostat", true, true, kNeutral, "0", "mirostat is not offered"},
    {"use_beam_search", true, true, kNeutral, "false", "beam search is not offered"},
    {"length_penalty", true, true, kNeutral, "1.0|1", "beam search is not offered"},
    {"early_stopping", true, true, kNeutral, "false", "beam search is not offered"},
    {"truncate_prompt_tokens", true, true, kNeutral, "", "prompts are never cut silently"},
    {"lora", true, true, kNeutral, "[]", "adapters are not offered"},
    {"adapters", true, true, kNeutral, "[]|\"\"", "adapters are not offered"},
    {"user", true, true, kInert, "", "label"},
    {"metadata", true, true, kInert, "", "label"},
    {"store", true, true, kInert, "", "nothing is stored"},
    {"service_tier", true, true, kInert, "", "there is one tier"},
    {"safety_identifier", true, true, kInert, "", "label"},
    {"prompt_cache_retention", true, true, kInert, "", "cached rows live as long as there is room"},
    {"keep_alive", true, true, kInert, "", "the model stays loaded"},
};

bool is_neutral(const JsonValue& value, std::string_view neutral) {
  if (value.is_null()) return true;
  const std::string text = to_json(value);
  while (!neutral.empty()) {
    const size_t bar = std::min(neutral.find('|'), neutral.size());
    if (neutral.substr(0, bar) == text) return true;
    neutral.remove_prefix(std::min(neutral.size(), bar + 1));
  }
  return false;
}

}  // namespace

std::span<const FieldRow> field_table() { return kTable; }

std::optional<ApiError> check_field_names(const JsonValue& body, Route route, bool strict, int& num_unknown) {
  for (const JsonMember& member : body.as_object()) {
    const auto row = std::find_if(std::begin(kTable), std::end(kTable), [&](const FieldRow& r) {
      return r.name == member.first && (route == Route::kChat ? r.chat : r.completion);
    });
    if (row == std::end(kTable)) {
      if (strict) return field_error(member.first, "unknown field (the server runs with --strict-fields)");
      ++num_unknown;
      log_debug("ignored an unknown request field of {} bytes", member.first.size());
      continue;
    }
    if (row->treatment == FieldTreatment::kNeutralOnly && !is_neutral(member.second, row->neutral)) {
      return unsupported_field(member.first, std::string(row->help));
    }
  }
  return std::nullopt;
}

}  // namespace mlxcel
