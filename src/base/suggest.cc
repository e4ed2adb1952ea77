#include "base/suggest.h"

#include <algorithm>
#include <vector>

namespace mlxcel {
namespace {

// Longer words are never typing slips worth a quadratic comparison.
constexpr size_t kMaxWordBytes = 128;

std::string lower_case(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

}  // namespace

int edit_distance(std::string_view a, std::string_view b) {
  std::vector<int> before_last(b.size() + 1), last(b.size() + 1), current(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    current[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const int replace = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      current[j] = std::min({last[j] + 1, current[j - 1] + 1, replace});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        current[j] = std::min(current[j], before_last[j - 2] + 1);
      }
    }
    std::swap(before_last, last);
    std::swap(last, current);
  }
  return last[b.size()];
}

std::optional<std::string> closest_word(std::string_view word, std::span<const std::string> candidates) {
  if (word.empty() || word.size() > kMaxWordBytes) return std::nullopt;
  const std::string wanted = lower_case(word);
  const int limit = std::max(1, static_cast<int>(wanted.size()) / 3);
  std::optional<std::string> best;
  int best_distance = limit + 1;
  for (const std::string& candidate : candidates) {
    if (candidate.size() > kMaxWordBytes) continue;
    const int distance = edit_distance(wanted, lower_case(candidate));
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  if (best) return best;
  for (const std::string& candidate : candidates) {
    if (wanted.size() >= 3 && lower_case(candidate).starts_with(wanted)) return candidate;
  }
  return std::nullopt;
}

}  // namespace mlxcel
