#include "engine/ngram_drafter.h"

#include <algorithm>

namespace mlxcel {

// FNV-1a over the ids and the length. A colliding key only finds a place to compare; find() compares the
// tokens.
uint64_t NgramDrafter::key_of(std::span<const TokenId> gram) {
  uint64_t h = 0xcbf29ce484222325ull ^ gram.size();
  for (const TokenId id : gram) h = (h ^ static_cast<uint32_t>(id)) * 0x100000001b3ull;
  return h;
}

// Indexes every gram that has a successor. A sequence that was cut or changed is indexed from the start.
void NgramDrafter::index(std::span<const TokenId> tokens) {
  const size_t common = static_cast<size_t>(
      std::mismatch(indexed_.begin(), indexed_.end(), tokens.begin(), tokens.end()).first - indexed_.begin());
  if (common < indexed_.size()) {
    after_.clear();
    indexed_.clear();
  }
  // A gram that ends at the old end has a successor now.
  const size_t begin = indexed_.empty() ? 0 : indexed_.size() - 1;
  for (size_t end = std::max<size_t>(begin, 1); end < tokens.size(); ++end) {
    for (const int gram : {kShort, kLong}) {
      const auto n = static_cast<size_t>(gram);
      if (end >= n) after_[key_of(tokens.subspan(end - n, n))] = static_cast<int64_t>(end);
    }
  }
  indexed_.insert(indexed_.end(), tokens.begin() + static_cast<std::ptrdiff_t>(indexed_.size()),
                  tokens.end());
}

int64_t NgramDrafter::find(std::span<const TokenId> tokens, int gram) const {
  const auto n = static_cast<size_t>(gram);
  if (tokens.size() <= n) return -1;
  const std::span<const TokenId> newest = tokens.last(n);
  const auto it = after_.find(key_of(newest));
  if (it == after_.end()) return -1;
  const auto begin = tokens.begin() + static_cast<std::ptrdiff_t>(it->second - gram);
  return std::equal(newest.begin(), newest.end(), begin) ? it->second : -1;
}

std::vector<TokenId> NgramDrafter::propose(std::span<const TokenId> tokens, int32_t most) {
  if (pause_ > 0) {
    --pause_;
    return {};
  }
  index(tokens);
  int64_t after = find(tokens, kLong);
  if (after < 0) after = find(tokens, kShort);
  if (after < 0) return {};
  const int64_t left = static_cast<int64_t>(tokens.size()) - after;
  const int64_t n = std::min<int64_t>({left, most, std::max(length_, 1)});
  const auto begin = tokens.begin() + after;
  return {begin, begin + n};
}

void NgramDrafter::report(int32_t num_proposed, int32_t num_accepted) {
  if (num_proposed == 0) return;
  if (num_accepted == num_proposed) {
    length_ = std::min(std::max(length_, 1) * 2, 64);
    next_pause_ = kPauseMin;
  } else if (num_accepted > 0) {
    length_ = std::max(num_accepted + 1, 2);
  } else if (length_ > 1) {
    length_ /= 2;
  } else {
    pause_ = next_pause_;
    next_pause_ = std::min(next_pause_ * 2, kPauseMax);
    length_ = 2;
  }
}

}  // namespace mlxcel
