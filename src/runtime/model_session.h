// Everything a front end needs of one model: tokenizer, chat template, defaults, engine. `mlxcel run`,
// `generate`, `score` and the server all start here.
//
// Owner: apps/ or serve/. Threads: tokenizer and template are free for all; the engine belongs to one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "chat/chat_template.h"
#include "engine/engine.h"
#include "runtime/memory_plan.h"
#include "tokenizer/tokenizer.h"

namespace mlxcel {

enum class BackendKind { kCpu, kReference };

// Rows of a sequence when nobody asks for a number: the model's own limit, but not more than this.
inline constexpr int64_t kDefaultContextLength = 8192;

struct SessionOptions {
  std::string model_path;  // folder or .gguf, already resolved
  BackendKind backend = BackendKind::kCpu;
  RunnerOptions runner;  // max_position is set from the context length
  EngineOptions engine;  // kv_bytes is set from `kv`
  KvMemory kv;
  bool force = false;  // load although memory_plan.h says that it does not fit
  // Used where engine.context_length is 0. nullopt: the model's limit, at most kDefaultContextLength; 0: the
  // model's limit; more than the model's limit is refused.
  std::optional<int64_t> context_length;
  std::optional<std::string> chat_template;  // overrides the checkpoint's (source text)
};

struct TextModel {  // without weights: for tokenize, template
  std::shared_ptr<const Checkpoint> checkpoint;
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const ChatTemplate> chat_template;  // nullptr: the checkpoint has none
  std::shared_ptr<const ChatTemplate>
      tool_template;  // a template of its own for requests with tools, or nullptr
  std::map<std::string, std::string> special_tokens;
  std::vector<TokenId> eos_ids;  // union of config, generation_config, tokenizer
  // generation_config.json's sampling, only what the file sets.
  struct Defaults {
    std::optional<float> temperature, top_p, min_p, repetition_penalty;
    std::optional<int32_t> top_k;
    std::optional<bool> do_sample;
    std::optional<int64_t> max_new_tokens;
  } defaults;
};
Result<TextModel> load_text_model(const std::string& path,
                                  const std::optional<std::string>& chat_template = std::nullopt);

struct ModelSession {
  TextModel text;
  std::unique_ptr<Engine> engine;
  std::string quantisation;
  std::vector<std::string> warnings;
  MemoryPlan memory;
  double load_seconds = 0.0;
};
// kOutOfMemory before anything is read when weights and KV cache do not fit.
Result<ModelSession> open_session(const SessionOptions& options);
// The same without tokenizer and template (text stays empty): for measuring and for prompts given as ids.
Result<ModelSession> open_engine(const SessionOptions& options);
// The context length that `options` mean for a model; the error names both numbers.
Result<int64_t> choose_context_length(const ModelSpec& spec, const SessionOptions& options);

// Encodes a rendered prompt: template pieces may form special tokens, content never does.
std::vector<TokenId> encode_prompt(const Tokenizer& tokenizer, const RenderedPrompt& prompt);

// Runs one sequence to its end (a batch of one).
struct GenerateOptions {
  SamplingParams sampling;
  StopRules stop;
  std::vector<std::string> stop_strings;
  int32_t prefill_chunk = 512;
  int num_logprobs = -1;
  bool skip_special_tokens = true;
};
// Adds a sequence for `prompt` with the sampling and stop rules of `options`; generate() runs it.
Result<SequenceId> start_sequence(ModelSession& session, std::vector<TokenId> prompt,
                                  const GenerateOptions& options);
struct GenerateResult {
  std::string text;
  std::vector<TokenId> tokens;
  std::vector<Logprobs> logprobs;
  std::optional<std::string> matched_stop;  // kStopString: which
  FinishReason finish = FinishReason::kNone;
  int64_t prompt_tokens = 0, cached_tokens = 0;
  double prefill_seconds = 0.0, decode_seconds = 0.0, first_token_seconds = 0.0;
};
// `on_text` gets pieces as soon as they are certain (no half characters, no half stop strings) and returns
// false to stop (Ctrl-C): the result then has finish kCancelled. Concatenated pieces == result.text.
Result<GenerateResult> generate(ModelSession& session, SequenceId sequence, const GenerateOptions& options,
                                const std::function<bool(std::string_view)>& on_text);

}  // namespace mlxcel
