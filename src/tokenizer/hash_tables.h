// Two flat hash tables that fit what tokenizers look up: strings to ids, and pairs of ids to merges. Built
// once while loading, read-only afterwards.
//
// Owner: the model. Threads: reading is free for all. Insertion order never shows: nothing iterates these
// tables.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mlxcel {

// Mixes eight bytes at a time; multiplication and fold as in the public-domain wyhash family.
inline uint64_t mix_hash(uint64_t a, uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(a ^ 0x9E3779B97F4A7C15ull) * (b ^ 0xE7037ED1A0B428DBull);
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}
inline uint64_t hash_bytes(std::string_view text) {
  uint64_t hash = text.size();
  const char* p = text.data();
  size_t left = text.size();
  for (; left >= 8; left -= 8, p += 8) {
    uint64_t word = 0;
    std::memcpy(&word, p, 8);
    hash = mix_hash(hash, word);
  }
  uint64_t tail = 0;
  if (left > 0) std::memcpy(&tail, p, left);
  return mix_hash(hash, tail);
}

// Strings to 32-bit values. The strings live in one arena; the last value of two equal keys wins.
class StringTable {
 public:
  void reserve(size_t count, size_t bytes) {
    arena_.reserve(bytes);
    grow(count);
  }
  void set(std::string_view key, int32_t value) {
    if ((count_ + 1) * 2 > slots_.size()) grow(count_ * 2 + 8);
    const uint64_t hash = hash_bytes(key);
    Slot& slot = slots_[probe(key, hash)];
    if (slot.used == 0) {
      slot = {arena_.size(), static_cast<uint32_t>(key.size()), static_cast<uint32_t>(hash >> 32), value, 1};
      arena_.append(key);
      ++count_;
    } else {
      slot.value = value;
    }
  }
  std::optional<int32_t> find(std::string_view key) const {
    if (slots_.empty()) return std::nullopt;
    const Slot& slot = slots_[probe(key, hash_bytes(key))];
    if (slot.used == 0) return std::nullopt;
    return slot.value;
  }
  size_t size() const { return count_; }

 private:
  struct Slot {
    size_t offset = 0;
    uint32_t size = 0;
    uint32_t tag = 0;  // upper half of the hash: spares most comparisons
    int32_t value = 0;
    uint32_t used = 0;
  };
  size_t probe(std::string_view key, uint64_t hash) const {
    const size_t mask = slots_.size() - 1;
    const auto tag = static_cast<uint32_t>(hash >> 32);
    for (size_t i = hash & mask;; i = (i + 1) & mask) {
      const Slot& slot = slots_[i];
      if (slot.used == 0) return i;
      if (slot.tag == tag && slot.size == key.size() &&
          std::memcmp(arena_.data() + slot.offset, key.data(), key.size()) == 0)
        return i;
    }
  }
  void grow(size_t count) {
    size_t capacity = 16;
    while (capacity < count * 2) capacity *= 2;
    if (capacity <= slots_.size()) return;
    std::vector<Slot> old(capacity);
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.used == 0) continue;
      const std::string_view key(arena_.data() + slot.offset, slot.size);
      slots_[probe(key, hash_bytes(key))] = slot;
    }
  }
  std::string arena_;
  std::vector<Slot> slots_;
  size_t count_ = 0;
};

// Pairs of 32-bit keys to one value of type V; the last of two equal keys wins.
template <typename V>
class PairTable {
 public:
  void reserve(size_t count) { grow(count); }
  void set(int32_t left, int32_t right, const V& value) {
    if ((count_ + 1) * 2 > slots_.size()) grow(count_ * 2 + 8);
    const uint64_t key = pack(left, right);
    Slot& slot = slots_[probe(key)];
    if (slot.key == kEmpty) ++count_;
    slot = {key, value};
  }
  const V* find(int32_t left, int32_t right) const {
    if (slots_.empty()) return nullptr;
    const Slot& slot = slots_[probe(pack(left, right))];
    return slot.key == kEmpty ? nullptr : &slot.value;
  }

 private:
  // Keys are ids or code points, never negative: all ones is no key.
  static constexpr uint64_t kEmpty = ~uint64_t{0};
  struct Slot {
    uint64_t key = kEmpty;
    V value{};
  };
  static uint64_t pack(int32_t left, int32_t right) {
    return (uint64_t{static_cast<uint32_t>(left)} << 32) | static_cast<uint32_t>(right);
  }
  size_t probe(uint64_t key) const {
    const size_t mask = slots_.size() - 1;
    for (size_t i = mix_hash(key, 0) & mask;; i = (i + 1) & mask)
      if (slots_[i].key == key || slots_[i].key == kEmpty) return i;
  }
  void grow(size_t count) {
    size_t capacity = 16;
    while (capacity < count * 2) capacity *= 2;
    if (capacity <= slots_.size()) return;
    std::vector<Slot> old(capacity);
    old.swap(slots_);
    for (const Slot& slot : old)
      if (slot.key != kEmpty) slots_[probe(slot.key)] = slot;
  }
  std::vector<Slot> slots_;
  size_t count_ = 0;
};

}  // namespace mlxcel
