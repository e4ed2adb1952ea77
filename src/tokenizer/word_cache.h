// Ids of words that were encoded before. Bounded: a shard that is full starts over, so the memory is fixed
// and the cost stays constant whatever text comes.
//
// Owner: a model. Threads: free for all; each shard has its lock. Contents never change a result, only its
// cost.
#pragma once

#include <array>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/hash_tables.h"
#include "tokenizer/tokenizer.h"

namespace mlxcel {

class WordCache {
 public:
  static constexpr size_t kWordBytesMax = 64;

  // Appends the ids of `word` and returns true when it is known.
  bool find(std::string_view word, uint64_t hash, std::vector<TokenId>& out) const {
    const Shard& shard = shards_[hash >> 60];
    const std::lock_guard lock(shard.mutex);
    if (shard.slots.empty()) return false;
    const Slot& slot = shard.slots[shard.probe(word, hash)];
    if (slot.is_free()) return false;
    const auto begin = shard.ids.begin() + slot.ids_offset;
    out.insert(out.end(), begin, begin + slot.ids_size);
    return true;
  }

  // REQUIRES: word.size() <= kWordBytesMax.
  void insert(std::string_view word, uint64_t hash, const TokenId* ids, size_t count) const {
    Shard& shard = shards_[hash >> 60];
    const std::lock_guard lock(shard.mutex);
    if (shard.slots.empty()) shard.slots.resize(kSlots);
    if (shard.count == kWordsMax) {
      shard.slots.assign(kSlots, Slot{});
      shard.keys.clear();
      shard.ids.clear();
      shard.count = 0;
    }
    Slot& slot = shard.slots[shard.probe(word, hash)];
    if (!slot.is_free()) return;  // another thread was faster
    slot = {hash,
            static_cast<uint32_t>(shard.keys.size()),
            static_cast<uint32_t>(shard.ids.size()),
            static_cast<uint16_t>(word.size()),
            static_cast<uint16_t>(count),
            true};
    shard.keys.append(word);
    shard.ids.insert(shard.ids.end(), ids, ids + count);
    ++shard.count;
  }

 private:
  // 16 shards of 4096 words: 64 Ki words hold the running vocabulary of several languages, at most 25 MiB.
  static constexpr size_t kSlots = 8192;
  static constexpr size_t kWordsMax = 4096;
  struct Slot {
    uint64_t hash = 0;
    uint32_t key_offset = 0;
    uint32_t ids_offset = 0;
    uint16_t key_size = 0;
    uint16_t ids_size = 0;
    bool is_used = false;
    bool is_free() const { return !is_used; }
  };
  struct Shard {
    mutable std::mutex mutex;
    std::vector<Slot> slots;
    std::string keys;
    std::vector<TokenId> ids;
    size_t count = 0;
    size_t probe(std::string_view word, uint64_t hash) const {
      for (size_t i = hash & (kSlots - 1);; i = (i + 1) & (kSlots - 1)) {
        const Slot& slot = slots[i];
        if (slot.is_free()) return i;
        if (slot.hash == hash && std::string_view(keys).substr(slot.key_offset, slot.key_size) == word)
          return i;
      }
    }
  };
  mutable std::array<Shard, 16> shards_;
};

}  // namespace mlxcel
