// What filters and string methods share: stripping, replacing, splitting, padding, with origins kept.
// Pure functions but for the Runtime's limits; any thread.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "chat/jinja/runtime.h"

namespace mlxcel::jinja {

enum class Side : uint8_t { kLeft, kRight, kBoth };
// nullopt: white space.
Text strip(const Text& text, const std::optional<std::string>& characters, Side side);
// count < 0: all.
Text replace(Runtime& runtime, const Text& text, const Text& from, const Text& to, int64_t count);
std::vector<Text> split_lines(const Text& text, bool keep_ends);
// By white space; limit < 0: no limit.
std::vector<Text> split_space(const Text& text, int64_t limit);
std::vector<Text> split_space_from_right(const Text& text, int64_t limit);
std::vector<Text> split(const Text& text, const std::string& separator, int64_t limit);
std::vector<Text> split_from_right(const Text& text, const std::string& separator, int64_t limit);
// Pads to `width` characters with `fill`; left is how much of an odd padding goes before (Python's center).
Text center(Runtime& runtime, const Text& text, int64_t width, const std::string& fill);
Text justify(Runtime& runtime, const Text& text, int64_t width, const std::string& fill, bool to_left);
Text join(Runtime& runtime, const Text& separator, const std::vector<Text>& pieces);
Value texts(Runtime& runtime, std::vector<Text> pieces);  // as a list of strings

}  // namespace mlxcel::jinja
