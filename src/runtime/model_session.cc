#include "runtime/model_session.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/environment.h"
#include "base/memory_info.h"
#include "model/model_loader.h"

namespace mlxcel {
namespace {

Status open_engine_into(std::shared_ptr<const Checkpoint> checkpoint, const SessionOptions& options,
                        ModelSession& session) {
  const uint64_t weight_bytes = checkpoint->tensor_bytes();
  MLXCEL_ASSIGN_OR_RETURN(LoadedModel model, load_model(std::move(checkpoint)));
  session.quantisation = model.quantisation;
  session.warnings = model.warnings;
  MLXCEL_ASSIGN_OR_RETURN(const int64_t context_length, choose_context_length(model.spec, options));
  RunnerOptions runner_options = options.runner;
  runner_options.max_position = context_length;
  EngineOptions engine_options = options.engine;
  engine_options.context_length = context_length;
  MemoryDemand demand;
  demand.weight_bytes = weight_bytes;
  demand.layout = kv_layout_for(model.spec, runner_options.key_type, runner_options.value_type);
  demand.context_length = context_length;
  demand.max_sequences = engine_options.max_sequences;
  demand.kv = options.kv;
  demand.force = options.force;
  MLXCEL_ASSIGN_OR_RETURN(session.memory, plan_memory(demand, available_memory_bytes()));
  if (session.memory.is_kv_reduced) {
    session.warnings.push_back(fmt::format(
        "memory holds {} of the {} rows that {} x {} tokens would take", session.memory.kv_rows,
        engine_options.max_sequences * context_length, engine_options.max_sequences, context_length));
  }
  // 0 lets the engine round every context up to whole blocks.
  const bool is_whole = !options.kv.bytes && !options.kv.percent && !session.memory.is_kv_reduced;
  engine_options.kv_bytes =
      is_whole ? 0 : static_cast<int64_t>(std::min<uint64_t>(session.memory.kv_bytes, INT64_MAX));
  std::unique_ptr<ModelRunner> runner;
  if (options.backend == BackendKind::kReference) {
    MLXCEL_ASSIGN_OR_RETURN(runner, create_reference_runner(std::move(model), runner_options));
  } else {
    MLXCEL_ASSIGN_OR_RETURN(runner, create_cpu_runner(std::move(model), runner_options));
  }
  MLXCEL_ASSIGN_OR_RETURN(session.engine, Engine::create(std::move(runner), engine_options));
  return ok_status();
}

}  // namespace

Result<int64_t> choose_context_length(const ModelSpec& spec, const SessionOptions& options) {
  const int64_t limit = spec.max_position > 0 ? spec.max_position : kDefaultContextLength;
  const int64_t asked = options.engine.context_length > 0
                            ? options.engine.context_length
                            : options.context_length.value_or(std::min(limit, kDefaultContextLength));
  if (asked == 0) return limit;
  if (asked > limit) {
    return make_error(ErrorKind::kInvalidArgument, "the context is longer than the model's", "ctx-size",
                      fmt::format("at most {}", limit), fmt::format("{}", asked),
                      "leave -c out, or use -c 0 for the model's limit");
  }
  return asked;
}

Result<ModelSession> open_session(const SessionOptions& options) {
  const double begin = monotonic_seconds();
  ModelSession session;
  MLXCEL_ASSIGN_OR_RETURN(session.text, load_text_model(options.model_path, options.chat_template));
  MLXCEL_RETURN_IF_ERROR(open_engine_into(session.text.checkpoint, options, session));
  const int64_t vocabulary = session.engine->runner().spec().vocab_size;
  if (session.text.tokenizer->vocab_size() > vocabulary) {
    session.warnings.push_back(
        fmt::format("the tokenizer has {} tokens, the model {}: text that needs the rest is refused",
                    session.text.tokenizer->vocab_size(), vocabulary));
  }
  session.load_seconds = monotonic_seconds() - begin;
  return session;
}

Result<ModelSession> open_engine(const SessionOptions& options) {
  const double begin = monotonic_seconds();
  ModelSession session;
  MLXCEL_ASSIGN_OR_RETURN(std::shared_ptr<const Checkpoint> checkpoint, open_checkpoint(options.model_path));
  MLXCEL_RETURN_IF_ERROR(open_engine_into(std::move(checkpoint), options, session));
  session.load_seconds = monotonic_seconds() - begin;
  return session;
}

std::vector<TokenId> encode_prompt(const Tokenizer& tokenizer, const RenderedPrompt& prompt) {
  const std::vector<TextSpan> spans = prompt.spans();
  return tokenizer.encode_spans(spans);
}

Result<SequenceId> start_sequence(ModelSession& session, std::vector<TokenId> prompt,
                                  const GenerateOptions& options) {
  MLXCEL_RETURN_IF_ERROR(options.sampling.validate());
  const int64_t vocabulary = session.engine->runner().spec().vocab_size;
  for (const TokenId id : prompt) {
    if (id < 0 || id >= vocabulary) {
      return make_error(ErrorKind::kInvalidArgument, "the prompt holds a token the model does not have",
                        "prompt", fmt::format("ids below {}", vocabulary), fmt::format("{}", id));
    }
  }
  SequenceRequest request;
  request.prompt = std::move(prompt);
  request.sampling = options.sampling;
  request.stop = options.stop;
  request.num_logprobs = options.num_logprobs;
  return session.engine->add(std::move(request));
}

}  // namespace mlxcel
