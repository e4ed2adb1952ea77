// Rows that several sequences may share: a tree of blocks, one node per block, keyed by the tokens that its
// rows were computed from. A full block has a key (128-bit xxh3 over the parent's key, the token ids and a
// fingerprint of everything else that decides the bytes); a partly filled tail is a leaf that is found by
// comparing tokens, so that a match of any length is usable. A key only finds a candidate: the stored token
// ids and the parent are compared before a row is served (a colliding key must never swap two users'
// contents).
//
// No bytes here: an entry is a reference to a block of the BlockPool. Who adopts a partly filled or partly
// matched block gets a reference and copies it on its first write (SequenceCache does that by itself).
//
// Owner: the engine. Threads: the engine thread only, no locks.
// Invariants: every entry holds one reference to its own block; an entry stays when it is used; an entry that
// a sequence or a PrefixMatch holds is never evicted, so what was counted is still there when it is read;
// leaves go first, the least recently used of them before all others. Results never depend on the numbers of
// the blocks.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.h"
#include "kv/block_pool.h"

namespace mlxcel {

using TokenId = int32_t;

struct BlockKey {
  uint64_t low = 0, high = 0;
  friend bool operator==(const BlockKey&, const BlockKey&) = default;
};
// The key of a full block. Tests replace it by one that collides.
using BlockKeyFunction = BlockKey (*)(const BlockKey& parent, uint64_t context,
                                      std::span<const TokenId> tokens);
BlockKey hash_block(const BlockKey& parent, uint64_t context, std::span<const TokenId> tokens);

// One number for all that decides a row's bytes besides the tokens: model, adapter, rope regime, KV types,
// numeric version and precision, tenant salt. The order counts, and ("ab", "c") differs from ("a", "bc").
uint64_t prefix_context(std::span<const std::string_view> parts);

// Of match() calls, also of those whose sequence did not run then; what was used, the scheduler counts.
struct PrefixCacheCounters {
  uint64_t lookups = 0, hits = 0;
  uint64_t lookup_tokens = 0, hit_tokens = 0;
  uint64_t blocks_inserted = 0, blocks_evicted = 0;
};

class PrefixCache;

// The rows found by match(); holds the entries in place as long as it lives, so that counting and adopting
// are one moment: SequenceCache::adopt(pool, layout, match.blocks(), match.num_rows()).
class PrefixMatch {
 public:
  PrefixMatch() = default;
  PrefixMatch(PrefixMatch&& other) noexcept;
  PrefixMatch& operator=(PrefixMatch&& other) noexcept;
  PrefixMatch(const PrefixMatch&) = delete;
  PrefixMatch& operator=(const PrefixMatch&) = delete;
  ~PrefixMatch();
  int64_t num_rows() const { return num_rows_; }
  std::span<const BlockId> blocks() const { return blocks_; }  // [ceil(num_rows / block_size)]
  // Gives up the rows beyond `num_rows` (what cannot be used is not counted as used). REQUIRES: 0 <= num_rows
  // <= this->num_rows().
  void shorten(int64_t num_rows);

 private:
  friend class PrefixCache;
  PrefixCache* cache_ = nullptr;
  uint32_t node_ = 0;  // the deepest entry in use; its ancestors stay because it does
  int64_t num_rows_ = 0;
  std::vector<BlockId> blocks_;
};

class PrefixCache {
 public:
  // The pool must outlive the cache.
  explicit PrefixCache(BlockPool& pool, BlockKeyFunction key_function = &hash_block);
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;
  ~PrefixCache();

  // The longest stored prefix of `tokens`, at most tokens.size() - 1 rows: the last token is always
  // evaluated, since its logits are what the caller wants.
  PrefixMatch match(std::span<const TokenId> tokens, uint64_t context);

  // Stores what `blocks` hold: rows [0, num_rows) computed from tokens[0, num_rows). Takes references of its
  // own to the blocks that are new here; the caller keeps or releases its own. Returns the number of entries
  // added. Refuses, and changes nothing, when the rows are not all there: a table of the wrong length, a
  // dropped block, fewer tokens than rows. A sequence that goes on writing should donate whole blocks only
  // (num_rows rounded down), or its next append copies the tail.
  Result<int64_t> donate(std::span<const TokenId> tokens, std::span<const BlockId> blocks, int64_t num_rows,
                         uint64_t context);

  int64_t num_blocks() const { return num_nodes_; }
  // Blocks that evict() could free now: entries that nobody else holds and below which nobody else holds one.
  // A kept number, but for the time that a match is alive: then every entry is looked at.
  int64_t num_evictable() const;
  // Frees min(num_blocks, num_evictable()) blocks and returns how many.
  int64_t evict(int64_t num_blocks);
  // Drops every entry. REQUIRES: no PrefixMatch is alive.
  void reset();
  const PrefixCacheCounters& counters() const { return counters_; }

  // The structure is sound, and the pool's counts are those of the given tables and the entries here
  // together.
  Status check_integrity(std::span<const std::span<const BlockId>> tables) const;

 private:
  friend class PrefixMatch;
  using NodeIndex = uint32_t;
  static constexpr NodeIndex kRoot = 0;
  static constexpr BlockId kNoBlock = -1;
  struct Node {
    BlockKey key;
    uint64_t context = 0;
    uint64_t last_use = 0;
    NodeIndex parent = kRoot;
    int32_t num_pins = 0;
    std::vector<TokenId> tokens;      // [1, block_size]; fewer than block_size: a partial tail, always a leaf
    std::vector<NodeIndex> children;  // ascending by (context, tokens)
  };
  struct KeyHash {
    size_t operator()(const BlockKey& key) const { return static_cast<size_t>(key.low); }
  };
  struct Tail {
    NodeIndex node = kRoot;
    int64_t num_rows = 0;
  };

  bool is_full(const Node& node) const;
  NodeIndex find_full_child(NodeIndex parent, const BlockKey& key, uint64_t context,
                            std::span<const TokenId> tokens) const;
  size_t child_position(NodeIndex parent, uint64_t context, std::span<const TokenId> tokens) const;
  Tail longest_tail(NodeIndex parent, uint64_t context, std::span<const TokenId> tokens) const;
  NodeIndex insert(NodeIndex parent, const BlockKey& key, uint64_t context, std::span<const TokenId> tokens,
                   BlockId block);
  void erase(NodeIndex index);
  void touch(NodeIndex index);
  void drop_superseded(NodeIndex parent, uint64_t context, std::span<const TokenId> tokens);
  bool is_held(NodeIndex index) const;
  bool is_live(NodeIndex index) const { return index == kRoot || blocks_[index] != kNoBlock; }
  bool hides_free_blocks(NodeIndex index) const;
  int64_t count_evictable() const;
  Status check_node(NodeIndex index) const;

  BlockPool& pool_;
  BlockKeyFunction key_function_;
  std::vector<Node> nodes_;
  std::vector<BlockId> blocks_;  // of each node, apart from it because count_evictable() looks at all;
                                 // kNoBlock: the root, and unused nodes
  std::vector<NodeIndex> unused_nodes_;  // slots of nodes_
  int64_t num_nodes_ = 0;                // live, without the root
  int64_t num_pins_ = 0;
  uint64_t clock_ = 0;                                            // one tick per match or donation
  std::unordered_map<BlockKey, NodeIndex, KeyHash> full_blocks_;  // of colliding keys one
  std::set<std::pair<uint64_t, NodeIndex>> leaves_;               // (last_use, node)
  mutable std::vector<uint8_t> is_pinned_;                        // scratch of count_evictable()
  PrefixCacheCounters counters_;
};

}  // namespace mlxcel
