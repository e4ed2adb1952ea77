#include "engine/engine.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "base/checked.h"
#include "engine/engine_impl.h"

namespace mlxcel {

namespace {

constexpr int32_t kBlockSizeMax = 256;
constexpr int64_t kSequencesMax = int64_t{1} << 20;
constexpr int64_t kContextMax = int64_t{1} << 30;  // positions inside a step are 32-bit
// Dense slots grow by whole chunks, so a byte budget is cut to whole chunks.
constexpr int64_t kDenseRowStep = 64;

Error bad_option(std::string_view option, std::string expected, std::string found, std::string hint = {}) {
  return make_error(ErrorKind::kInvalidArgument, "engine option out of range", std::string(option),
                    std::move(expected), std::move(found), std::move(hint));
}

Status check_options(const EngineOptions& options) {
  if (options.block_size < 1 || options.block_size > kBlockSizeMax) {
    return bad_option("kv-block-size", "1 to " + std::to_string(kBlockSizeMax),
                      std::to_string(options.block_size));
  }
  if (options.max_sequences < 1 || options.max_sequences > kSequencesMax) {
    return bad_option("max sequences", "1 to " + std::to_string(kSequencesMax),
                      std::to_string(options.max_sequences));
  }
  if (options.context_length < 0 || options.context_length > kContextMax) {
    return bad_option("context length", "0 to " + std::to_string(kContextMax),
                      std::to_string(options.context_length));
  }
  if (options.kv_bytes < 0) return bad_option("kv bytes", "0 or more", std::to_string(options.kv_bytes));
  if (options.padding_multiple < 1) {
    return bad_option("padding multiple", "1 or more", std::to_string(options.padding_multiple));
  }
  return ok_status();
}

std::vector<int64_t> rope_borders(const ModelSpec& spec) {
  std::vector<int64_t> borders;
  for (const LayerSpec& layer : spec.layers) {
    const AttentionSpec* attention = std::get_if<AttentionSpec>(&layer.mixer);
    if (attention == nullptr || attention->rope.kind != RopeKind::kLongRope) continue;
    borders.push_back(attention->rope.original_max_position);
  }
  std::sort(borders.begin(), borders.end());
  borders.erase(std::unique(borders.begin(), borders.end()), borders.end());
  return borders;
}

int64_t padding_multiple_for(const ModelRunner& runner, const EngineOptions& options) {
  if (!runner.capabilities().can_trim || !runner.kv_layout().can_trim()) return 1;
  if (options.force_padded_prefill) return *options.force_padded_prefill ? options.padding_multiple : 1;
  return std::max(1, runner.capabilities().preferred_row_multiple);
}

}  // namespace

std::string_view finish_reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kNone:
      return "none";
    case FinishReason::kEos:
      return "eos";
    case FinishReason::kStopToken:
      return "stop token";
    case FinishReason::kStopString:
      return "stop string";
    case FinishReason::kMaxTokens:
      return "max tokens";
    case FinishReason::kContext:
      return "context";
    case FinishReason::kCancelled:
      return "cancelled";
    case FinishReason::kError:
      return "error";
  }
  return "unknown";
}

Result<EngineBudget> plan_engine_budget(const ModelRunner& runner, const EngineOptions& options) {
  MLXCEL_RETURN_IF_ERROR(check_options(options));
  EngineBudget budget;
  budget.context_length = options.context_length > 0 ? options.context_length : runner.spec().max_position;
  if (budget.context_length < 1 || budget.context_length > kContextMax) {
    return bad_option("context length", "1 or more", std::to_string(budget.context_length),
                      "the checkpoint names no context length; give one");
  }
  const KvLayout& layout = runner.kv_layout();
  const int64_t row_bytes = std::max<int64_t>(1, layout.bytes_per_row());
  budget.kv.block_size = options.block_size;
  if (options.storage == KvStorageKind::kDense) {
    budget.kv.num_slots = static_cast<int32_t>(options.max_sequences);
    budget.kv.max_rows_per_slot = budget.context_length;
    if (options.kv_bytes > 0) {
      const int64_t rows =
          options.kv_bytes / row_bytes / options.max_sequences / kDenseRowStep * kDenseRowStep;
      budget.kv.max_rows_per_slot = std::min(budget.context_length, rows);
    }
    if (budget.kv.max_rows_per_slot < 1) {
      return bad_option("kv bytes",
                        "at least " + std::to_string(options.max_sequences * kDenseRowStep) + " rows of " +
                            std::to_string(row_bytes) + " bytes",
                        std::to_string(options.kv_bytes));
    }
    return budget;
  }
  const int64_t per_context = ceil_div(budget.context_length, options.block_size);
  int64_t num_blocks = 0;
  if (options.kv_bytes > 0) {
    num_blocks = options.kv_bytes / row_bytes / options.block_size;
  } else if (__builtin_mul_overflow(per_context, options.max_sequences, &num_blocks)) {
    num_blocks = std::numeric_limits<int64_t>::max();
  }
  if (num_blocks < 1 || num_blocks > std::numeric_limits<int32_t>::max()) {
    return bad_option("key/value cache size",
                      "1 to " + std::to_string(std::numeric_limits<int32_t>::max()) + " blocks of " +
                          std::to_string(options.block_size) + " rows",
                      std::to_string(num_blocks),
                      "change the context length, the number of sequences or the budget");
  }
  budget.kv.num_blocks = static_cast<int32_t>(num_blocks);
  return budget;
}

Result<std::unique_ptr<Engine>> Engine::create(std::unique_ptr<ModelRunner> runner,
                                               const EngineOptions& options) {
  MLXCEL_CHECK(runner != nullptr);
  if (runner->kv_layout().state_bytes_per_sequence() > 0) {
    return make_error(ErrorKind::kUnsupported, "the engine runs attention layers only", runner->spec().family,
                      "no recurrent state",
                      std::to_string(runner->kv_layout().state_bytes_per_sequence()) + " bytes per sequence");
  }
  MLXCEL_ASSIGN_OR_RETURN(const EngineBudget budget, plan_engine_budget(*runner, options));
  MLXCEL_ASSIGN_OR_RETURN(std::unique_ptr<KvStorage> storage,
                          runner->create_kv_storage(options.storage, budget.kv));
  return std::unique_ptr<Engine>(
      std::make_unique<EngineImpl>(std::move(runner), std::move(storage), options, budget));
}

EngineImpl::EngineImpl(std::unique_ptr<ModelRunner> runner, std::unique_ptr<KvStorage> storage,
                       const EngineOptions& options, const EngineBudget& budget)
    : runner_(std::move(runner)), budget_(budget), options_(options), storage_(std::move(storage)) {
  padding_multiple_ = padding_multiple_for(*runner_, options_);
  rope_borders_ = rope_borders(runner_->spec());
  if (options_.storage == KvStorageKind::kPaged) pool_.emplace(budget_.kv.num_blocks, budget_.kv.block_size);
  if (pool_ && options_.prefix_cache) prefix_.emplace(*pool_);
}

int64_t EngineImpl::kv_capacity_rows() const {
  if (pool_) return int64_t{budget_.kv.num_blocks} * budget_.kv.block_size;
  return int64_t{budget_.kv.num_slots} * budget_.kv.max_rows_per_slot;
}

EngineRow& EngineImpl::row(SequenceId id) {
  const auto found = rows_.find(static_cast<uint64_t>(id));
  MLXCEL_CHECK_MSG(found != rows_.end(), "no such sequence");
  return found->second;
}

const EngineRow& EngineImpl::row(SequenceId id) const {
  const auto found = rows_.find(static_cast<uint64_t>(id));
  MLXCEL_CHECK_MSG(found != rows_.end(), "no such sequence");
  return found->second;
}

int64_t EngineImpl::rows_limit() const {
  return std::min(budget_.context_length, pool_ ? kv_capacity_rows() : budget_.kv.max_rows_per_slot);
}

int EngineImpl::rope_regime(int64_t total_length) const {
  return static_cast<int>(std::lower_bound(rope_borders_.begin(), rope_borders_.end(), total_length) -
                          rope_borders_.begin());
}

Status EngineImpl::check_new_sequence() const {
  const int64_t most = options_.max_sequences + options_.max_waiting;
  if (static_cast<int64_t>(rows_.size()) < most) return ok_status();
  return make_error(ErrorKind::kResourceExhausted, "all sequences of the engine are in use", "",
                    "fewer than " + std::to_string(most), std::to_string(rows_.size()));
}

Status EngineImpl::check_tokens(std::span<const TokenId> tokens) const {
  const int64_t vocab = runner_->spec().vocab_size;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] >= 0 && tokens[i] < vocab) continue;
    return make_error(ErrorKind::kInvalidArgument, "token id outside the vocabulary",
                      "token " + std::to_string(i), "0 to " + std::to_string(vocab - 1),
                      std::to_string(tokens[i]));
  }
  return ok_status();
}

// What can never fit is refused at once, with both numbers.
Status EngineImpl::check_length(int64_t num_tokens, const StopRules& stop) const {
  const int64_t needed = num_tokens + (stop.max_tokens == 0 ? 0 : 1);
  if (needed > budget_.context_length) {
    return make_error(ErrorKind::kInvalidArgument, "context_length_exceeded", "prompt",
                      "at most " + std::to_string(budget_.context_length) + " tokens with the answer's first",
                      std::to_string(needed), "shorten the prompt or start with a larger context");
  }
  const int64_t capacity = pool_ ? kv_capacity_rows() : budget_.kv.max_rows_per_slot;
  if (num_tokens <= capacity) return ok_status();
  return make_error(ErrorKind::kInvalidArgument, "context_length_exceeded", "prompt",
                    "at most " + std::to_string(capacity) + " rows of the key/value cache",
                    std::to_string(num_tokens), "shorten the prompt or give the cache more memory");
}

Status EngineImpl::check_request(const SequenceRequest& request) const {
  if (request.prompt.empty()) {
    return make_error(ErrorKind::kInvalidArgument, "the prompt has no tokens", "prompt", "at least 1", "0");
  }
  MLXCEL_RETURN_IF_ERROR(check_tokens(request.prompt));
  MLXCEL_RETURN_IF_ERROR(request.sampling.validate());
  MLXCEL_RETURN_IF_ERROR(check_token_ids(request.sampling, runner_->spec().vocab_size));
  if (request.num_logprobs < -1) {
    return make_error(ErrorKind::kInvalidArgument, "request field out of range", "logprobs", "-1 or more",
                      std::to_string(request.num_logprobs));
  }
  if (request.stop.max_tokens < -1 || request.stop.min_tokens < 0) {
    return make_error(
        ErrorKind::kInvalidArgument, "request field out of range", "max_tokens, min_tokens",
        "max_tokens -1 or more, min_tokens 0 or more",
        std::to_string(request.stop.max_tokens) + ", " + std::to_string(request.stop.min_tokens));
  }
  return check_length(static_cast<int64_t>(request.prompt.size()), request.stop);
}

Result<SequenceId> EngineImpl::add(SequenceRequest request) {
  MLXCEL_RETURN_IF_ERROR(check_request(request));
  MLXCEL_RETURN_IF_ERROR(check_new_sequence());
  std::optional<SequenceCache> cache;
  if (pool_) cache = SequenceCache::paged(*pool_, runner_->kv_layout());
  const uint64_t id = next_id_++;
  rows_.try_emplace(id, std::move(request), std::move(cache), runner_->spec().vocab_size);
  return SequenceId{id};
}

Result<SequenceId> EngineImpl::fork(SequenceId id, SamplingParams sampling) {
  MLXCEL_RETURN_IF_ERROR(sampling.validate());
  MLXCEL_RETURN_IF_ERROR(check_token_ids(sampling, runner_->spec().vocab_size));
  MLXCEL_RETURN_IF_ERROR(check_new_sequence());
  EngineRow& source = row(id);
  settle(source);
  MLXCEL_RETURN_IF_ERROR(ensure_cache(source));
  Result<SequenceCache> copy = source.cache->fork();
  if (!copy.ok() && !retired_.empty()) {
    forget_oldest_retired();
    copy = source.cache->fork();
  }
  if (!copy.ok()) return std::move(copy).error();
  SequenceCache cache = std::move(copy).value();
  SequenceRequest request;
  request.prompt = source.tokens;
  request.sampling = std::move(sampling);
  request.stop = source.stop;
  request.num_logprobs = source.num_logprobs;
  request.wants_prompt_logits = source.wants_prompt_logits;
  request.use_prefix_cache = source.use_prefix_cache;
  request.cache_salt = source.cache_salt;
  const uint64_t new_id = next_id_++;
  const auto [place, is_new] =
      rows_.try_emplace(new_id, std::move(request), std::move(cache), runner_->spec().vocab_size);
  MLXCEL_CHECK(is_new);
  place->second.num_prompt = source.num_prompt;
  place->second.rope_regime = source.rope_regime;
  place->second.finish = source.finish;
  return SequenceId{new_id};
}

void EngineImpl::remove(SequenceId id) {
  retire(row(id));
  rows_.erase(static_cast<uint64_t>(id));
}

Status EngineImpl::extend(SequenceId id, std::span<const TokenId> tokens, const StopRules& stop) {
  EngineRow& extended = row(id);
  MLXCEL_RETURN_IF_ERROR(check_tokens(tokens));
  MLXCEL_RETURN_IF_ERROR(check_length(extended.num_tokens() + static_cast<int64_t>(tokens.size()), stop));
  if (tokens.empty() && extended.num_computed() == extended.num_tokens()) {
    return make_error(ErrorKind::kInvalidArgument, "nothing to continue with", "tokens",
                      "a token, or one that is not computed yet", "none");
  }
  settle(extended);
  extended.drafts.clear();
  extended.tokens.insert(extended.tokens.end(), tokens.begin(), tokens.end());
  extended.num_prompt = extended.num_tokens();
  extended.set_stop(stop, runner_->spec().vocab_size);
  extended.finish = FinishReason::kNone;
  return ok_status();
}

// One row fewer than the tokens stays, so that the next step computes the last token's logits again.
Status EngineImpl::truncate(SequenceId id, int64_t num_tokens) {
  EngineRow& cut = row(id);
  if (num_tokens < 1 || num_tokens > cut.num_tokens()) {
    return make_error(ErrorKind::kInvalidArgument, "length to cut a sequence to is out of range", "",
                      "1 to " + std::to_string(cut.num_tokens()), std::to_string(num_tokens));
  }
  settle(cut);
  cut.drafts.clear();
  const int64_t surplus = std::max<int64_t>(0, cut.num_computed() - (num_tokens - 1));
  if (surplus > 0) {
    MLXCEL_CHECK_MSG(cut.cache->trim(surplus) == surplus, "the rows of removed tokens could not be trimmed");
  }
  cut.tokens.resize(static_cast<size_t>(num_tokens));
  cut.num_prompt = std::min(cut.num_prompt, num_tokens);
  cut.finish = FinishReason::kNone;
  return ok_status();
}

Status EngineImpl::check_integrity() const {
  std::vector<std::span<const BlockId>> holders;
  for (const auto& [id, one] : rows_) {
    if (one.cache) holders.push_back(one.cache->blocks());
    if (one.num_computed() <= one.num_tokens()) continue;
    return make_error(ErrorKind::kInternal, "a sequence has more rows than tokens",
                      "sequence " + std::to_string(id), "at most " + std::to_string(one.num_tokens()),
                      std::to_string(one.num_computed()));
  }
  if (prefix_) return prefix_->check_integrity(holders);
  return pool_ ? pool_->check_integrity(holders) : ok_status();
}

}  // namespace mlxcel
