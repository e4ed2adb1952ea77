#include "kv/prefix_cache.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "base/checked.h"

namespace mlxcel {
namespace {

constexpr int32_t kBlockSizeMax = 256;  // of --kv-block-size

int64_t common_prefix(std::span<const TokenId> a, std::span<const TokenId> b) {
  const size_t shorter = std::min(a.size(), b.size());
  return std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(shorter), b.begin()).first -
         a.begin();
}

bool equal_tokens(std::span<const TokenId> a, std::span<const TokenId> b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin());
}

}  // namespace

BlockKey hash_block(const BlockKey& parent, uint64_t context, std::span<const TokenId> tokens) {
  MLXCEL_CHECK(tokens.size() <= static_cast<size_t>(kBlockSizeMax));
  // Parent and context first: two chains that differ anywhere before differ here. One call over one buffer,
  // since xxh3's streaming state costs more than the copy.
  std::array<std::byte, 24 + sizeof(TokenId) * kBlockSizeMax> buffer;
  std::memcpy(buffer.data(), &parent.low, 8);
  std::memcpy(buffer.data() + 8, &parent.high, 8);
  std::memcpy(buffer.data() + 16, &context, 8);
  std::memcpy(buffer.data() + 24, tokens.data(), tokens.size_bytes());
  const XXH128_hash_t hash = XXH3_128bits(buffer.data(), 24 + tokens.size_bytes());
  return {hash.low64, hash.high64};
}

uint64_t prefix_context(std::span<const std::string_view> parts) {
  uint64_t context = parts.size();
  for (const std::string_view part : parts) {
    context =
        XXH3_64bits_withSeed(part.data(), part.size(), context + 0x9E3779B97F4A7C15u * (part.size() + 1));
  }
  return context;
}

PrefixMatch::PrefixMatch(PrefixMatch&& other) noexcept
    : cache_(std::exchange(other.cache_, nullptr)),
      node_(std::exchange(other.node_, 0)),
      num_rows_(std::exchange(other.num_rows_, 0)),
      blocks_(std::exchange(other.blocks_, {})) {}

PrefixMatch& PrefixMatch::operator=(PrefixMatch&& other) noexcept {
  PrefixMatch incoming(std::move(other));  // holds our old entries after the swaps and lets them go
  std::swap(cache_, incoming.cache_);
  std::swap(node_, incoming.node_);
  std::swap(num_rows_, incoming.num_rows_);
  std::swap(blocks_, incoming.blocks_);
  return *this;
}

PrefixMatch::~PrefixMatch() {
  if (cache_ == nullptr) return;
  --cache_->nodes_[node_].num_pins;
  --cache_->num_pins_;
}

void PrefixMatch::shorten(int64_t num_rows) {
  MLXCEL_CHECK(num_rows >= 0 && num_rows <= num_rows_);
  if (num_rows == num_rows_) return;
  PrefixCacheCounters& counters = cache_->counters_;
  counters.hit_tokens -= static_cast<uint64_t>(num_rows_ - num_rows);
  num_rows_ = num_rows;
  const auto keep = static_cast<size_t>(ceil_div(num_rows, cache_->pool_.block_size()));
  --cache_->nodes_[node_].num_pins;
  for (; blocks_.size() > keep; blocks_.pop_back()) node_ = cache_->nodes_[node_].parent;
  if (num_rows == 0) {
    --counters.hits;
    --cache_->num_pins_;
    cache_ = nullptr;
    return;
  }
  ++cache_->nodes_[node_].num_pins;
}

PrefixCache::PrefixCache(BlockPool& pool, BlockKeyFunction key_function)
    : pool_(pool), key_function_(key_function), nodes_(1), blocks_(1, kNoBlock) {
  MLXCEL_CHECK(pool.block_size() <= kBlockSizeMax);
}

PrefixCache::~PrefixCache() { reset(); }

bool PrefixCache::is_full(const Node& node) const {
  return static_cast<int64_t>(node.tokens.size()) == pool_.block_size();
}

// The first child that is not less than (context, tokens).
size_t PrefixCache::child_position(NodeIndex parent, uint64_t context,
                                   std::span<const TokenId> tokens) const {
  const std::vector<NodeIndex>& children = nodes_[parent].children;
  const auto position = std::lower_bound(
      children.begin(), children.end(), context, [this, tokens](NodeIndex child, uint64_t wanted_context) {
        const Node& node = nodes_[child];
        if (node.context != wanted_context) return node.context < wanted_context;
        return std::lexicographical_compare(node.tokens.begin(), node.tokens.end(), tokens.begin(),
                                            tokens.end());
      });
  return static_cast<size_t>(position - children.begin());
}

// kRoot when there is none.
PrefixCache::NodeIndex PrefixCache::find_full_child(NodeIndex parent, const BlockKey& key, uint64_t context,
                                                    std::span<const TokenId> tokens) const {
  const auto is_it = [&](NodeIndex index) {
    const Node& node = nodes_[index];
    return node.parent == parent && node.context == context && equal_tokens(node.tokens, tokens);
  };
  const auto found = full_blocks_.find(key);
  if (found != full_blocks_.end() && is_it(found->second)) return found->second;
  // The end of the walk; or two blocks with one key, of which the table has the other one.
  const size_t position = child_position(parent, context, tokens);
  const std::vector<NodeIndex>& children = nodes_[parent].children;
  return position < children.size() && is_it(children[position]) ? children[position] : kRoot;
}

// Among sorted sequences the longest common prefix with `tokens` is that of a neighbour of its place.
PrefixCache::Tail PrefixCache::longest_tail(NodeIndex parent, uint64_t context,
                                            std::span<const TokenId> tokens) const {
  Tail best;
  const size_t position = child_position(parent, context, tokens);
  const std::vector<NodeIndex>& children = nodes_[parent].children;
  for (const size_t candidate : {position, position - 1}) {
    if (candidate >= children.size()) continue;  // also 0 - 1
    const Node& node = nodes_[children[candidate]];
    if (node.context != context) continue;
    const int64_t common = common_prefix(node.tokens, tokens);
    if (common > best.num_rows) best = {children[candidate], common};
  }
  return best;
}

PrefixMatch PrefixCache::match(std::span<const TokenId> tokens, uint64_t context) {
  const auto block_size = static_cast<size_t>(pool_.block_size());
  const size_t rows_max = tokens.empty() ? 0 : tokens.size() - 1;
  PrefixMatch match;
  NodeIndex node = kRoot;
  size_t rows = 0;
  while (rows + block_size <= rows_max) {
    const auto block_tokens = tokens.subspan(rows, block_size);
    const BlockKey key = key_function_(nodes_[node].key, context, block_tokens);
    const NodeIndex child = find_full_child(node, key, context, block_tokens);
    if (child == kRoot) break;
    node = child;
    match.blocks_.push_back(blocks_[node]);
    rows += block_size;
  }
  const auto rest = tokens.subspan(rows, std::min(block_size, rows_max - rows));
  const Tail tail = longest_tail(node, context, rest);
  if (tail.num_rows > 0) {
    node = tail.node;
    match.blocks_.push_back(blocks_[node]);
    rows += static_cast<size_t>(tail.num_rows);
  }
  ++counters_.lookups;
  counters_.lookup_tokens += tokens.size();
  if (rows == 0) return match;
  ++counters_.hits;
  counters_.hit_tokens += rows;
  touch(node);
  ++nodes_[node].num_pins;
  ++num_pins_;
  match.cache_ = this;
  match.node_ = node;
  match.num_rows_ = static_cast<int64_t>(rows);
  return match;
}

Result<int64_t> PrefixCache::donate(std::span<const TokenId> tokens, std::span<const BlockId> blocks,
                                    int64_t num_rows, uint64_t context) {
  const int64_t block_size = pool_.block_size();
  if (num_rows < 0 || num_rows > static_cast<int64_t>(tokens.size())) {
    return make_error(ErrorKind::kInternal, "rows offered to the prefix cache have no tokens", "",
                      "at most " + std::to_string(tokens.size()) + " rows", std::to_string(num_rows));
  }
  if (static_cast<int64_t>(blocks.size()) != ceil_div(num_rows, block_size)) {
    return make_error(ErrorKind::kInternal, "rows offered to the prefix cache do not fill their blocks", "",
                      std::to_string(ceil_div(num_rows, block_size)) + " blocks",
                      std::to_string(blocks.size()));
  }
  if (std::any_of(blocks.begin(), blocks.end(), [](BlockId block) { return block < 0; })) {
    return make_error(ErrorKind::kInternal, "rows offered to the prefix cache were dropped at the front");
  }
  int64_t num_added = 0;
  NodeIndex node = kRoot;
  for (size_t i = 0; i < blocks.size(); ++i) {
    const int64_t begin = static_cast<int64_t>(i) * block_size;
    const auto block_tokens = tokens.subspan(static_cast<size_t>(begin),
                                             static_cast<size_t>(std::min(block_size, num_rows - begin)));
    BlockKey key;
    NodeIndex child = kRoot;
    if (static_cast<int64_t>(block_tokens.size()) == block_size) {
      key = key_function_(nodes_[node].key, context, block_tokens);
      child = find_full_child(node, key, context, block_tokens);
    } else {
      const Tail tail = longest_tail(node, context, block_tokens);
      if (tail.num_rows == static_cast<int64_t>(block_tokens.size()))
        child = tail.node;  // more of it is here
    }
    if (child == kRoot) {
      drop_superseded(node, context, block_tokens);
      child = insert(node, key, context, block_tokens, blocks[i]);
      ++num_added;
    }
    node = child;
  }
  if (node != kRoot) touch(node);
  return num_added;
}

// A partial tail of which `tokens` are a continuation says nothing more.
void PrefixCache::drop_superseded(NodeIndex parent, uint64_t context, std::span<const TokenId> tokens) {
  const size_t position = child_position(parent, context, tokens);
  if (position == 0) return;
  const NodeIndex index = nodes_[parent].children[position - 1];
  const Node& node = nodes_[index];
  if (node.context != context || node.num_pins > 0 || is_full(node)) return;
  if (common_prefix(node.tokens, tokens) == static_cast<int64_t>(node.tokens.size())) erase(index);
}

PrefixCache::NodeIndex PrefixCache::insert(NodeIndex parent, const BlockKey& key, uint64_t context,
                                           std::span<const TokenId> tokens, BlockId block) {
  pool_.retain(block);
  pool_.mark_cached(block);
  NodeIndex index = static_cast<NodeIndex>(nodes_.size());
  if (unused_nodes_.empty()) {
    nodes_.emplace_back();
    blocks_.push_back(kNoBlock);
  } else {
    index = unused_nodes_.back();
    unused_nodes_.pop_back();
  }
  blocks_[index] = block;
  Node& node = nodes_[index];
  node.key = key;
  node.context = context;
  node.last_use = clock_;
  node.parent = parent;
  node.tokens.assign(tokens.begin(), tokens.end());
  std::vector<NodeIndex>& siblings = nodes_[parent].children;
  const size_t position = child_position(parent, context, tokens);
  if (parent != kRoot && siblings.empty()) leaves_.erase({nodes_[parent].last_use, parent});
  siblings.insert(siblings.begin() + static_cast<std::ptrdiff_t>(position), index);
  leaves_.insert({node.last_use, index});
  if (is_full(node)) full_blocks_.emplace(key, index);
  ++num_nodes_;
  ++counters_.blocks_inserted;
  return index;
}

// REQUIRES: a leaf without pins.
void PrefixCache::erase(NodeIndex index) {
  Node& node = nodes_[index];
  MLXCEL_CHECK(is_live(index) && node.children.empty() && node.num_pins == 0);
  std::vector<NodeIndex>& siblings = nodes_[node.parent].children;
  siblings.erase(siblings.begin() +
                 static_cast<std::ptrdiff_t>(child_position(node.parent, node.context, node.tokens)));
  if (node.parent != kRoot && siblings.empty()) leaves_.insert({nodes_[node.parent].last_use, node.parent});
  leaves_.erase({node.last_use, index});
  if (const auto found = full_blocks_.find(node.key);
      is_full(node) && found != full_blocks_.end() && found->second == index) {
    full_blocks_.erase(found);
  }
  const BlockId block = std::exchange(blocks_[index], kNoBlock);
  pool_.unmark_cached(block);
  pool_.release(block);
  node = Node{};
  unused_nodes_.push_back(index);
  --num_nodes_;
}

// A use of an entry is a use of all before it, so no entry is older than one below it.
void PrefixCache::touch(NodeIndex index) {
  ++clock_;
  for (; index != kRoot; index = nodes_[index].parent) {
    Node& node = nodes_[index];
    if (node.children.empty()) {
      leaves_.erase({node.last_use, index});
      leaves_.insert({clock_, index});
    }
    node.last_use = clock_;
  }
}

bool PrefixCache::is_held(NodeIndex index) const { return pool_.references(blocks_[index]) > 1; }

// Above this entry are blocks that nobody but the cache has: they go only after it.
bool PrefixCache::hides_free_blocks(NodeIndex index) const {
  for (; index != kRoot; index = nodes_[index].parent) {
    if (!is_held(index)) return true;
  }
  return false;
}

// Between two steps no match is alive, and the pool has the number.
int64_t PrefixCache::num_evictable() const {
  return num_pins_ == 0 ? pool_.num_cached_alone() : count_evictable();
}

int64_t PrefixCache::count_evictable() const {
  is_pinned_.assign(nodes_.size(), 0);
  is_pinned_[kRoot] = 1;
  for (size_t i = 1; num_pins_ > 0 && i < nodes_.size(); ++i) {
    if (nodes_[i].num_pins == 0) continue;
    for (auto index = static_cast<NodeIndex>(i); is_pinned_[index] == 0; index = nodes_[index].parent) {
      is_pinned_[index] = 1;
    }
  }
  int64_t evictable = 0;
  for (size_t i = 1; i < nodes_.size(); ++i) {
    evictable += blocks_[i] != kNoBlock && is_pinned_[i] == 0 && pool_.references(blocks_[i]) == 1 ? 1 : 0;
  }
  return evictable;
}

int64_t PrefixCache::evict(int64_t num_blocks) {
  int64_t evicted = 0;
  for (const bool forgets_held : {false, true}) {
    for (auto leaf = leaves_.begin(); leaf != leaves_.end() && evicted < num_blocks;) {
      const auto [last_use, index] = *leaf;
      const bool was_held = is_held(index);
      if (nodes_[index].num_pins > 0 || (was_held && !(forgets_held && hides_free_blocks(index)))) {
        ++leaf;
        continue;
      }
      erase(index);
      evicted += was_held ? 0 : 1;
      leaf = leaves_.lower_bound({last_use, 0});  // its parent may be a leaf now, of the same age or younger
    }
  }
  counters_.blocks_evicted += static_cast<uint64_t>(evicted);
  return evicted;
}

void PrefixCache::reset() {
  MLXCEL_CHECK_MSG(num_pins_ == 0, "the prefix cache is reset while a match is in use");
  while (!leaves_.empty()) erase(leaves_.begin()->second);
}

Status PrefixCache::check_node(NodeIndex index) const {
  const Node& node = nodes_[index];
  const auto fail = [index](const char* what) {
    return make_error(ErrorKind::kInternal, what, "prefix cache entry " + std::to_string(index));
  };
  if (index != kRoot) {
    if (node.tokens.empty() || static_cast<int64_t>(node.tokens.size()) > pool_.block_size()) {
      return fail("an entry has no tokens or more than a block");
    }
    if (!is_live(node.parent)) return fail("an entry's parent is gone");
    if (node.parent != kRoot && nodes_[node.parent].last_use < node.last_use) {
      return fail("an entry is older than one below it");
    }
    if (node.children.empty() != leaves_.contains({node.last_use, index})) {
      return fail("the list of leaves is wrong");
    }
    if (!is_full(node) && !node.children.empty()) return fail("a partly filled block has successors");
  }
  for (size_t i = 0; i < node.children.size(); ++i) {
    const Node& child = nodes_[node.children[i]];
    if (!is_live(node.children[i]) || child.parent != index)
      return fail("an entry names a child that is not its own");
    if (child_position(index, child.context, child.tokens) != i)
      return fail("children are out of order or equal");
  }
  return ok_status();
}

Status PrefixCache::check_integrity(std::span<const std::span<const BlockId>> tables) const {
  std::vector<BlockId> own;
  int64_t num_children = 0;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (!is_live(static_cast<NodeIndex>(i))) continue;
    MLXCEL_RETURN_IF_ERROR(check_node(static_cast<NodeIndex>(i)));
    num_children += static_cast<int64_t>(nodes_[i].children.size());
    if (i != kRoot) own.push_back(blocks_[i]);
  }
  if (static_cast<int64_t>(own.size()) != num_nodes_ || num_children != num_nodes_) {
    return make_error(ErrorKind::kInternal, "the prefix cache's count of entries is wrong", "",
                      std::to_string(num_nodes_), std::to_string(own.size()));
  }
  for (const auto& [key, index] : full_blocks_) {
    if (!is_live(index) || !is_full(nodes_[index]) || nodes_[index].key != key) {
      return make_error(ErrorKind::kInternal, "a key of the prefix cache names another entry");
    }
  }
  std::vector<BlockId> sorted = own;
  std::sort(sorted.begin(), sorted.end());
  if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) {
    return make_error(ErrorKind::kInternal, "two entries of the prefix cache hold the same block");
  }
  if (count_evictable() != num_evictable()) {
    return make_error(ErrorKind::kInternal, "the prefix cache's count of evictable blocks is wrong", "",
                      std::to_string(count_evictable()), std::to_string(num_evictable()));
  }
  std::vector<std::span<const BlockId>> holders(tables.begin(), tables.end());
  holders.emplace_back(own);
  return pool_.check_integrity(holders);
}

}  // namespace mlxcel
