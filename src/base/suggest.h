// "Did you mean ...?": the nearest word of a list, for flags, commands and model names.
// Pure functions; any thread.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace mlxcel {

// Edits (insert, delete, replace, swap of neighbours) between two words: optimal string alignment distance.
int edit_distance(std::string_view a, std::string_view b);
// The candidate with the fewest edits, when that is at most a third of the word (at least one edit is
// allowed), or one that starts with the word. Ties: the earlier candidate. Case is ignored.
std::optional<std::string> closest_word(std::string_view word, std::span<const std::string> candidates);

}  // namespace mlxcel
