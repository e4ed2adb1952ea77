// A byte trie over a fixed set of keys: added tokens and Unigram pieces. Children of a node lie side by side,
// sorted by byte, so a node is a few words and a step is a short search.
//
// Owner: whoever matches. Threads: built once, then read-only.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace mlxcel {

class Trie {
 public:
  // Empty keys are left out; of two equal keys the last one's value stays. Values are not negative.
  void build(std::vector<std::pair<std::string, int32_t>> keys);
  bool empty() const { return nodes_.size() <= 1; }
  bool can_start(unsigned char byte) const { return !empty() && root_[byte] != 0; }

  // Calls visit(length, value) for every key that is a prefix of `text`, shortest first.
  template <typename Visitor>
  void for_each_prefix(std::string_view text, Visitor&& visit) const {
    if (empty() || text.empty()) return;
    uint32_t node = root_[static_cast<unsigned char>(text[0])];
    for (size_t length = 1; node != 0; ++length) {
      if (nodes_[node].value >= 0) visit(length, nodes_[node].value);
      if (length == text.size()) return;
      node = child(node, static_cast<unsigned char>(text[length]));
    }
  }

 private:
  struct Node {
    uint32_t first_child = 0;
    uint16_t child_count = 0;
    int32_t value = -1;
  };
  uint32_t child(uint32_t node, unsigned char byte) const;
  std::vector<Node> nodes_;            // 0 is the root; as a child number 0 means "none"
  std::vector<unsigned char> labels_;  // of each node, the byte that leads to it
  std::vector<uint32_t> root_;         // 256 children of the root
};

}  // namespace mlxcel
