#include "fake_engine.h"

#include <algorithm>
#include <utility>

namespace mlxcel::sim {
namespace {

constexpr TokenId kVocabSize = 24;  // small, so that texts and prompts run into each other
constexpr TokenId kEndToken = 0;
constexpr uint64_t kEndOneIn = 60;  // texts are long enough to fill small pools
constexpr TokenId kPaddingToken = 0;
constexpr uint64_t kContext = 1;

uint64_t mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

uint64_t absorb(uint64_t state, TokenId token) {
  return mix(state + 0x9E3779B97F4A7C15u + static_cast<uint64_t>(token));
}

TokenId choose(uint64_t state, uint64_t seed, int64_t position) {
  const uint64_t drawn = mix(state ^ mix(seed + static_cast<uint64_t>(position)));
  if (drawn % kEndOneIn == 0) return kEndToken;
  return static_cast<TokenId>(1 + (drawn >> 32) % (kVocabSize - 1));
}

FinishReason finish_reason(TokenId token, int64_t num_tokens, const FakeRequest& request, int64_t rows_max) {
  if (token == kEndToken) return FinishReason::kEos;
  if (num_tokens - static_cast<int64_t>(request.prompt.size()) >= request.max_tokens)
    return FinishReason::kMaxTokens;
  return num_tokens >= rows_max ? FinishReason::kContext : FinishReason::kNone;
}

}  // namespace

uint64_t Random::next() {
  state_ += 0x9E3779B97F4A7C15u;
  return mix(state_);
}

LoneRun run_alone(const FakeRequest& request, int64_t rows_max) {
  LoneRun run;
  uint64_t state = 0;
  for (const TokenId token : request.prompt) state = absorb(state, token);
  auto num_tokens = static_cast<int64_t>(request.prompt.size());
  while (run.finish == FinishReason::kNone) {
    const TokenId token = choose(state, request.seed, num_tokens);
    run.tokens.push_back(token);
    state = absorb(state, token);
    run.finish = finish_reason(token, ++num_tokens, request, rows_max);
  }
  return run;
}

FakeEngine::FakeEngine(const FakeEngineOptions& options, uint64_t seed)
    : options_(options),
      random_(seed),
      pool_(options.num_blocks, options.block_size),
      prefixes_(pool_),
      slots_(static_cast<size_t>(options.num_blocks) * static_cast<size_t>(options.block_size), -1) {
  layout_.layers.resize(1);
  pool_.shuffle_free_list(options.block_order_seed);
}

SequenceId FakeEngine::add(const FakeRequest& request) {
  const SequenceId id{++num_added_};
  rows_.emplace(id, Row{request, request.prompt, SequenceCache::paged(pool_, layout_)});
  return id;
}

BlockCounts FakeEngine::blocks() const {
  return {pool_.num_free(), prefixes_.num_evictable(), pool_.num_blocks(), pool_.block_size()};
}

int64_t FakeEngine::num_tokens(SequenceId id) const {
  return static_cast<int64_t>(rows_.at(id).tokens.size());
}

int64_t FakeEngine::blocks_needed(SequenceId id, int64_t num_rows) const {
  const SequenceCache& cache = rows_.at(id).cache;
  if (num_rows == 0) return 0;
  const int64_t block_size = pool_.block_size();
  const int64_t fresh = (cache.length() + num_rows + block_size - 1) / block_size - cache.blocks_held();
  const bool must_copy = cache.length() % block_size != 0 && pool_.references(cache.blocks().back()) > 1;
  return fresh + (must_copy ? 1 : 0);
}

int64_t FakeEngine::admit(SequenceId id) {
  Row& row = rows_.at(id);
  MLXCEL_CHECK(row.cache.length() == 0);
  PrefixMatch match = prefixes_.match(row.tokens, kContext);
  row.cache = SequenceCache::adopt(pool_, layout_, match.blocks(), match.num_rows());
  const int64_t missing = num_tokens(id) - match.num_rows();
  if (match.num_rows() % pool_.block_size() != 0 && blocks_needed(id, missing) > blocks().available()) {
    match.shorten(match.num_rows() / pool_.block_size() * pool_.block_size());
    row.cache = SequenceCache::adopt(pool_, layout_, match.blocks(), match.num_rows());
    ++counters_.tails_not_adopted;
  }
  counters_.adopted_rows += static_cast<uint64_t>(match.num_rows());
  return match.num_rows();
}

void FakeEngine::donate(const Row& row, int64_t num_rows) {
  const auto num_blocks = static_cast<size_t>((num_rows + pool_.block_size() - 1) / pool_.block_size());
  const auto added = prefixes_.donate(row.tokens, row.cache.blocks().first(num_blocks), num_rows, kContext);
  MLXCEL_CHECK(added.ok());
}

void FakeEngine::preempt(SequenceId id) {
  Row& row = rows_.at(id);
  donate(row, row.cache.length());
  row.cache = SequenceCache::paged(pool_, layout_);
}

void FakeEngine::release(SequenceId id) {
  preempt(id);
  rows_.erase(id);
}

TokenId& FakeEngine::slot(BlockId block, int64_t position) {
  return slots_[static_cast<size_t>(int64_t{block} * pool_.block_size() + position % pool_.block_size())];
}

// Takes what the scheduler has planned, so it cannot fail: cached prefixes go when the free list is too
// short.
void FakeEngine::append(Row& row, std::span<const TokenId> tokens) {
  const int64_t first = row.cache.length();
  auto plan = row.cache.plan_append(static_cast<int64_t>(tokens.size()));
  for (; !plan.ok(); plan = row.cache.plan_append(static_cast<int64_t>(tokens.size()))) {
    MLXCEL_CHECK_MSG(prefixes_.evict(1) == 1, "a planned append finds no block");
    ++counters_.evicted;
  }
  for (const BlockCopy& copy : row.cache.commit_append(std::move(plan).value())) {
    ++counters_.copies;
    for (int32_t i = 0; i < copy.rows && !options_.forgets_copies; ++i) slot(copy.to, i) = slot(copy.from, i);
  }
  for (size_t i = 0; i < tokens.size(); ++i) {
    const int64_t position = first + static_cast<int64_t>(i);
    const BlockId block = row.cache.blocks()[static_cast<size_t>(position / pool_.block_size())];
    MLXCEL_CHECK_MSG(pool_.references(block) == 1, "a block with two owners is written");
    slot(block, position) = tokens[i];
  }
}

// The next token after the first num_rows rows, read from where they are.
TokenId FakeEngine::sample(const Row& row, int64_t num_rows) const {
  const KvView view = row.cache.view();
  uint64_t state = 0;
  for (int64_t position = 0; position < num_rows; ++position) {
    const BlockId block = view.blocks[static_cast<size_t>(position / view.block_size)];
    state = absorb(
        state, slots_[static_cast<size_t>(int64_t{block} * view.block_size + position % view.block_size)]);
  }
  return choose(state, row.request.seed, num_rows);
}

// Three of four guesses are right.
std::vector<TokenId> FakeEngine::guess(const Row& row, int32_t count) {
  std::vector<TokenId> drafts;
  uint64_t state = 0;
  for (const TokenId token : row.tokens) state = absorb(state, token);
  for (int32_t i = 0; i < count; ++i) {
    const auto position = static_cast<int64_t>(row.tokens.size()) + i;
    const TokenId right = choose(state, row.request.seed, position);
    drafts.push_back(random_.one_in(4) ? (right + 1) % kVocabSize : right);
    state = absorb(state, drafts.back());
  }
  return drafts;
}

void FakeEngine::pad(Work& work, int64_t& spare_blocks) {
  const int64_t num_rows = work.row->cache.length() - work.length_before;
  if (num_rows == 1 || num_rows % options_.padding == 0) return;
  const int64_t padding = options_.padding - num_rows % options_.padding;
  const int64_t block_size = pool_.block_size();
  const int64_t length = work.row->cache.length();
  const int64_t needed =
      (length + padding + block_size - 1) / block_size - (length + block_size - 1) / block_size;
  if (needed > spare_blocks) return;
  spare_blocks -= needed;
  append(*work.row, std::vector<TokenId>(static_cast<size_t>(padding), kPaddingToken));
  work.num_padding = padding;
}

StepResult FakeEngine::step(const ScheduledStep& step) {
  std::vector<Work> all;
  const bool step_fails = options_.step_error_one_in > 0 && random_.one_in(options_.step_error_one_in);
  counters_.step_errors += step_fails ? 1 : 0;
  for (const ScheduledSegment& segment : step.segments) {
    Work work;
    work.row = &rows_.at(segment.sequence);
    work.length_before = work.row->cache.length();
    work.num_known = work.length_before + segment.num_tokens;
    work.fails = step_fails || (options_.row_error_one_in > 0 && random_.one_in(options_.row_error_one_in));
    work.drafts = guess(*work.row, segment.num_drafts);
    MLXCEL_CHECK_MSG(
        blocks_needed(segment.sequence, segment.num_tokens + segment.num_drafts) <= segment.num_blocks,
        "a segment needs more blocks than were planned");
    std::vector<TokenId> inputs(work.row->tokens.begin() + work.length_before,
                                work.row->tokens.begin() + work.num_known);
    inputs.insert(inputs.end(), work.drafts.begin(), work.drafts.end());
    append(*work.row, inputs);
    all.push_back(std::move(work));
  }
  int64_t spare_blocks = step.num_spare_blocks;  // optional rows only after all others have their blocks
  for (Work& work : all) pad(work, spare_blocks);
  StepResult result;
  for (size_t i = 0; i < all.size(); ++i) {
    const size_t first = result.events.size();
    finish_segment(all[i], result);
    for (size_t k = first; k < result.events.size(); ++k)
      result.events[k].sequence = step.segments[i].sequence;
    result.seconds += 0.001 * static_cast<double>(all[i].num_known - all[i].length_before);
  }
  result.seconds += 0.02;
  return result;
}

void FakeEngine::finish_segment(Work& work, StepResult& result) {
  Row& row = *work.row;
  MLXCEL_CHECK(row.cache.trim(work.num_padding) == work.num_padding);
  counters_.padded_rows_trimmed += static_cast<uint64_t>(work.num_padding);
  SequenceEvent event;
  if (work.fails) {
    const int64_t appended = row.cache.length() - work.length_before;
    MLXCEL_CHECK(row.cache.trim(appended) == appended);
    event.error = make_error(ErrorKind::kInternal, "the row failed");
    event.finish = FinishReason::kError;
    ++counters_.row_errors;
    result.events.push_back(std::move(event));
    return;
  }
  event.num_computed = static_cast<int32_t>(work.num_known - work.length_before);
  int64_t num_true = work.num_known;
  const int64_t rows_max = EngineControl::rows_max();
  while (num_true == static_cast<int64_t>(row.tokens.size())) {
    const TokenId token = sample(row, num_true);
    row.tokens.push_back(token);
    event.token = token;
    event.finish = finish_reason(token, num_true + 1, row.request, rows_max);
    const auto index = static_cast<size_t>(num_true - work.num_known);
    const bool was_guessed = index < work.drafts.size() && work.drafts[index] == token;
    if (event.finish != FinishReason::kNone || !was_guessed) break;
    ++counters_.drafts_accepted;
    ++num_true;
    result.events.push_back(std::exchange(event, SequenceEvent{}));
    event.num_computed = 1;
  }
  result.events.push_back(std::move(event));
  const int64_t rejected = row.cache.length() - num_true;
  MLXCEL_CHECK(row.cache.trim(rejected) == rejected);
  counters_.drafts_rejected += static_cast<uint64_t>(rejected);
  const bool has_first_token = row.tokens.size() == row.request.prompt.size() + 1;
  if (options_.shares_running_prompts && has_first_token) {
    donate(row, num_true / pool_.block_size() * pool_.block_size());
  }
}

Status FakeEngine::check_integrity() const {
  std::vector<std::span<const BlockId>> tables;
  for (const auto& [id, row] : rows_) {
    tables.push_back(row.cache.blocks());
    const int64_t wanted = (row.cache.length() + pool_.block_size() - 1) / pool_.block_size();
    if (row.cache.blocks_held() != wanted) {
      return make_error(ErrorKind::kInternal,
                        "a sequence holds another number of blocks than its length says");
    }
  }
  return prefixes_.check_integrity(tables);
}

int64_t FakeEngine::drain() {
  prefixes_.reset();
  return pool_.num_in_use();
}

}  // namespace mlxcel::sim
