#include "engine/stop_matcher.h"

#include <utility>

namespace mlxcel {

StopMatcher::StopMatcher(const std::vector<std::string>& stop_strings) : nodes_(1) {
  for (size_t i = 0; i < stop_strings.size(); ++i) {
    if (!stop_strings[i].empty()) insert(stop_strings[i], i);
  }
  link_failures();
}

int32_t StopMatcher::child(int32_t node, uint8_t byte) const {
  for (const auto& [label, next] : nodes_[static_cast<size_t>(node)].children) {
    if (label == byte) return next;
  }
  return -1;
}

void StopMatcher::insert(std::string_view text, size_t index) {
  int32_t node = 0;
  for (const char character : text) {
    const auto byte = static_cast<uint8_t>(character);
    int32_t next = child(node, byte);
    if (next < 0) {
      next = static_cast<int32_t>(nodes_.size());
      nodes_[static_cast<size_t>(node)].children.emplace_back(byte, next);
      nodes_.emplace_back();
      nodes_.back().depth = nodes_[static_cast<size_t>(node)].depth + 1;
    }
    node = next;
  }
  Node& last = nodes_[static_cast<size_t>(node)];
  if (last.match) return;  // the same string twice: the first one counts
  last.match = index;
  last.match_length = text.size();
}

// Breadth first, so that the failure of every shorter prefix is known.
void StopMatcher::link_failures() {
  std::vector<int32_t> queue{0};
  for (size_t i = 0; i < queue.size(); ++i) {
    const int32_t node = queue[i];
    for (const auto& [byte, next] : nodes_[static_cast<size_t>(node)].children) {
      Node& target = nodes_[static_cast<size_t>(next)];
      target.failure = node == 0 ? 0 : step(nodes_[static_cast<size_t>(node)].failure, byte);
      const Node& suffix = nodes_[static_cast<size_t>(target.failure)];
      if (!target.match && suffix.match) {
        target.match = suffix.match;
        target.match_length = suffix.match_length;
      }
      queue.push_back(next);
    }
  }
}

int32_t StopMatcher::step(int32_t node, uint8_t byte) const {
  while (true) {
    const int32_t next = child(node, byte);
    if (next >= 0) return next;
    if (node == 0) return 0;
    node = nodes_[static_cast<size_t>(node)].failure;
  }
}

std::string StopMatcher::push(std::string_view piece) {
  if (matched_) return {};
  held_.append(piece);
  for (size_t i = held_.size() - piece.size(); i < held_.size(); ++i) {
    state_ = step(state_, static_cast<uint8_t>(held_[i]));
    const Node& node = nodes_[static_cast<size_t>(state_)];
    if (!node.match) continue;
    matched_ = node.match;
    std::string certain = std::move(held_);
    certain.resize(i + 1 - node.match_length);
    held_.clear();
    return certain;
  }
  const size_t certain_size = held_.size() - static_cast<size_t>(nodes_[static_cast<size_t>(state_)].depth);
  std::string certain = held_.substr(0, certain_size);
  held_.erase(0, certain_size);
  return certain;
}

std::string StopMatcher::flush() {
  state_ = 0;
  return std::exchange(held_, {});
}

}  // namespace mlxcel
