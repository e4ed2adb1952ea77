// Rows that outlive their sequence: the prefix cache, pre-emption, and the counts a scheduler plans with.
#include <algorithm>
#include <string>
#include <utility>

#include "base/checked.h"
#include "engine/engine_impl.h"

namespace mlxcel {

void EngineImpl::forget_oldest_retired() {
  retired_.erase(retired_.begin());
  ++dense_counters_.blocks_evicted;
}

// A sequence of the dense storage takes its slot when it first needs one; a retired one makes way.
Status EngineImpl::ensure_cache(EngineRow& row) {
  if (row.cache) return ok_status();
  Result<SequenceCache> cache = SequenceCache::dense(*storage_->dense_slots(), runner_->kv_layout());
  if (!cache.ok() && !retired_.empty()) {
    forget_oldest_retired();
    cache = SequenceCache::dense(*storage_->dense_slots(), runner_->kv_layout());
  }
  if (!cache.ok()) return std::move(cache).error();
  row.cache = std::move(cache).value();
  return ok_status();
}

// Cached blocks give way to rows that are wanted now.
void EngineImpl::make_room(const EngineRow& row, int64_t num_rows) {
  if (!prefix_) return;
  const int64_t block = pool_->block_size(), length = row.cache->length();
  int64_t needed = ceil_div(length + num_rows, block) - ceil_div(length, block);
  if (length % block != 0 && num_rows > 0) ++needed;  // the tail may be shared
  if (needed > pool_->num_free()) prefix_->evict(needed - pool_->num_free());
}

// All that decides a row's bytes besides the tokens before it.
uint64_t EngineImpl::cache_context(const EngineRow& row) const {
  const KvLayout& layout = runner_->kv_layout();
  const std::string regime = std::to_string(rope_regime(row.num_tokens()));
  const std::string_view parts[] = {runner_->spec().family,
                                    kv_type_name(layout.key_type),
                                    kv_type_name(layout.value_type),
                                    activation_precision_name(runner_->precision()),
                                    regime,
                                    row.cache_salt};
  return prefix_context(parts);
}

KvUse EngineImpl::kv_use() const {
  KvUse use;
  if (pool_) {
    use.total = pool_->num_blocks();
    use.free = pool_->num_free();
    use.cached = prefix_ ? prefix_->num_evictable() : 0;
    use.block_size = pool_->block_size();
  } else {
    int64_t held = 0;
    for (const auto& [id, one] : rows_) held += one.cache ? 1 : 0;
    use.is_dense = true;
    use.total = budget_.kv.num_slots;
    use.cached = static_cast<int64_t>(retired_.size());
    use.free = use.total - held - use.cached;
    use.block_size = budget_.kv.max_rows_per_slot;
  }
  use.held = use.total - use.free - use.cached;
  return use;
}

int64_t EngineImpl::blocks_needed(SequenceId id, int64_t num_rows) const {
  const EngineRow& asked = row(id);
  if (!pool_) return asked.cache ? 0 : 1;
  const int64_t block = pool_->block_size(), length = asked.num_computed();
  int64_t needed = std::max<int64_t>(0, ceil_div(length + num_rows, block) - asked.cache->blocks_held());
  if (num_rows > 0 && length % block != 0) {
    const BlockId tail = asked.cache->blocks()[static_cast<size_t>(length / block)];
    if (pool_->references(tail) > 1) ++needed;
  }
  return needed;
}

int64_t EngineImpl::adopt_prefix(SequenceId id) {
  EngineRow& adopting = row(id);
  MLXCEL_CHECK_MSG(adopting.num_computed() == 0 && !adopting.ahead,
                   "only a sequence without rows can adopt some");
  adopting.rope_regime = rope_regime(adopting.num_tokens());
  // Logits of all prompt rows are wanted, so all of them are computed.
  if (!options_.prefix_cache || !adopting.use_prefix_cache || adopting.wants_prompt_logits) return 0;
  return pool_ ? adopt_paged(adopting) : adopt_dense(adopting);
}

int64_t EngineImpl::adopt_paged(EngineRow& adopting) {
  PrefixMatch match = prefix_->match(adopting.tokens, cache_context(adopting));
  const int64_t block = pool_->block_size(), rows = match.num_rows();
  // A partly filled tail is copied before it is written. Where the pool is too small for the copy besides the
  // rest, only whole blocks are taken: the sequence must be able to finish when it is alone.
  if (rows % block != 0 && ceil_div(adopting.num_tokens() + 1, block) + 1 > pool_->num_blocks()) {
    match.shorten(rows / block * block);
  }
  if (match.num_rows() == 0) return 0;
  adopting.cache = SequenceCache::adopt(*pool_, runner_->kv_layout(), match.blocks(), match.num_rows());
  return match.num_rows();
}

// Dense rows cannot be shared: the best retired sequence's rows are copied into a slot of our own.
int64_t EngineImpl::adopt_dense(EngineRow& adopting) {
  ++dense_counters_.lookups;
  dense_counters_.lookup_tokens += static_cast<uint64_t>(adopting.num_tokens());
  const uint64_t context = cache_context(adopting);
  size_t best = retired_.size();
  int64_t best_rows = 0;
  for (size_t i = 0; i < retired_.size(); ++i) {
    if (retired_[i].context != context) continue;
    const auto [mine, theirs] = std::mismatch(adopting.tokens.begin(), adopting.tokens.end() - 1,
                                              retired_[i].tokens.begin(), retired_[i].tokens.end());
    const int64_t rows = mine - adopting.tokens.begin();
    if (rows > best_rows) {
      best = i;
      best_rows = rows;
    }
  }
  if (best_rows == 0) return 0;
  std::rotate(retired_.begin() + static_cast<std::ptrdiff_t>(best),
              retired_.begin() + static_cast<std::ptrdiff_t>(best) + 1,
              retired_.end());  // now the newest
  Result<SequenceCache> copy = retired_.back().cache.fork();
  if (!copy.ok() && retired_.size() > 1) {
    forget_oldest_retired();
    copy = retired_.back().cache.fork();
  }
  if (copy.ok()) {
    adopting.cache = std::move(copy).value();
  } else {
    // No slot for a copy: the retired sequence becomes this one.
    adopting.cache = std::move(retired_.back().cache);
    retired_.pop_back();
    ++dense_counters_.blocks_evicted;
  }
  const int64_t surplus = adopting.cache->length() - best_rows;
  MLXCEL_CHECK_MSG(adopting.cache->trim(surplus) == surplus,
                   "rows beyond the common prefix could not be trimmed");
  ++dense_counters_.hits;
  dense_counters_.hit_tokens += static_cast<uint64_t>(best_rows);
  return best_rows;
}

// Leaves what is true of a sequence's rows to the cache and gives up the rest.
void EngineImpl::retire(EngineRow& leaving) {
  settle(leaving);
  leaving.drafts.clear();
  const int64_t rows = leaving.num_computed();
  const bool keeps =
      options_.prefix_cache && leaving.use_prefix_cache && rows > 0 && leaving.cache->first_visible() == 0;
  if (keeps && prefix_) {
    const Result<int64_t> added =
        prefix_->donate(leaving.tokens, leaving.cache->blocks(), rows, cache_context(leaving));
    MLXCEL_CHECK_MSG(added.ok(), added.ok() ? "" : added.error().one_line());
  } else if (keeps && !pool_) {
    std::vector<TokenId> tokens(leaving.tokens.begin(), leaving.tokens.begin() + rows);
    retired_.push_back({std::move(tokens), cache_context(leaving), *std::move(leaving.cache)});
    ++dense_counters_.blocks_inserted;
  }
  leaving.cache.reset();
  if (pool_) leaving.cache = SequenceCache::paged(*pool_, runner_->kv_layout());
}

void EngineImpl::drop_rows(SequenceId id) { retire(row(id)); }

// A prompt that has just been computed is shared at once, while its sequence still runs: requests with the
// same prefix that are waiting now find it. Whole blocks only, or the next append would copy the tail.
void EngineImpl::share_prompt(EngineRow& done) {
  if (!prefix_ || !done.use_prefix_cache || done.cache->first_visible() != 0) return;
  const int64_t rows =
      std::min(done.num_prompt, done.num_computed()) / pool_->block_size() * pool_->block_size();
  if (rows == 0) return;
  const auto blocks = done.cache->blocks().first(static_cast<size_t>(rows / pool_->block_size()));
  const Result<int64_t> added = prefix_->donate(done.tokens, blocks, rows, cache_context(done));
  MLXCEL_CHECK_MSG(added.ok(), added.ok() ? "" : added.error().one_line());
}

Status EngineImpl::reset_prefix_cache() {
  if (!options_.prefix_cache) {
    return make_error(ErrorKind::kInvalidArgument, "the prefix cache is switched off");
  }
  if (prefix_) prefix_->reset();
  retired_.clear();
  return ok_status();
}

const PrefixCacheCounters& EngineImpl::prefix_counters() const {
  return prefix_ ? prefix_->counters() : dense_counters_;
}

}  // namespace mlxcel
