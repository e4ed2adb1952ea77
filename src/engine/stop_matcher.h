// Stop strings over streamed text: what cannot become part of a match is given out at once, a possible
// beginning is held back, the match itself is never given out, and held text comes out exactly once. Works on
// bytes: pieces may cut a character, and a stop string may begin inside a token.
//
// Aho-Corasick (Aho and Corasick 1975): one state per prefix of a stop string, so each byte costs one step
// whatever the number of stop strings. The state's depth is the length of the longest suffix of the text that
// a match could begin with: exactly what must be held back.
//
// Owner: the row's request. Threads: one.
// Invariants: given out + held + match == pushed, in order; after a match nothing more comes out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace mlxcel {

class StopMatcher {
 public:
  // Empty stop strings are ignored (they would match at once).
  explicit StopMatcher(const std::vector<std::string>& stop_strings);

  // Text that is now certain; never a part of a match. After a match: empty.
  std::string push(std::string_view piece);
  // At the end without a match: the text that was held back. Empty after a match and on a second call.
  std::string flush();
  // Index of the stop string that matched: the one that ends first; of those that end there, the one that
  // begins first (the longest).
  std::optional<size_t> matched() const { return matched_; }
  size_t num_held_bytes() const { return held_.size(); }

 private:
  struct Node {
    std::vector<std::pair<uint8_t, int32_t>> children;  // few: a linear search
    int32_t failure = 0;
    int32_t depth = 0;
    std::optional<size_t> match;  // longest stop string that ends here
    size_t match_length = 0;
  };
  int32_t child(int32_t node, uint8_t byte) const;  // -1: none
  int32_t step(int32_t node, uint8_t byte) const;
  void insert(std::string_view text, size_t index);
  void link_failures();

  std::vector<Node> nodes_;
  int32_t state_ = 0;
  std::string held_;  // nodes_[state_].depth bytes
  std::optional<size_t> matched_;
};

}  // namespace mlxcel
