#include "tokenizer/trie.h"

#include <algorithm>

namespace mlxcel {

void Trie::build(std::vector<std::pair<std::string, int32_t>> keys) {
  std::erase_if(keys, [](const auto& key) { return key.first.empty(); });
  std::stable_sort(keys.begin(), keys.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  nodes_.assign(1, Node{});
  labels_.assign(1, 0);
  root_.assign(256, 0);
  // Breadth first over ranges of the sorted keys: the children of one node come out side by side.
  struct Range {
    uint32_t node;
    size_t begin, end, depth;
  };
  std::vector<Range> queue{{0, 0, keys.size(), 0}};
  for (size_t head = 0; head < queue.size(); ++head) {
    Range range = queue[head];
    while (range.begin < range.end && keys[range.begin].first.size() == range.depth)
      nodes_[range.node].value = keys[range.begin++].second;
    nodes_[range.node].first_child = static_cast<uint32_t>(nodes_.size());
    for (size_t begin = range.begin; begin < range.end;) {
      const char byte = keys[begin].first[range.depth];
      size_t end = begin;
      while (end < range.end && keys[end].first[range.depth] == byte) ++end;
      const auto number = static_cast<uint32_t>(nodes_.size());
      nodes_.push_back(Node{});
      labels_.push_back(static_cast<unsigned char>(byte));
      ++nodes_[range.node].child_count;
      if (range.node == 0) root_[static_cast<unsigned char>(byte)] = number;
      queue.push_back({number, begin, end, range.depth + 1});
      begin = end;
    }
  }
}

uint32_t Trie::child(uint32_t node, unsigned char byte) const {
  const Node& n = nodes_[node];
  const auto begin = labels_.begin() + n.first_child;
  const auto end = begin + n.child_count;
  const auto found = n.child_count <= 8 ? std::find(begin, end, byte) : std::lower_bound(begin, end, byte);
  if (found == end || *found != byte) return 0;
  return static_cast<uint32_t>(found - labels_.begin());
}

}  // namespace mlxcel
