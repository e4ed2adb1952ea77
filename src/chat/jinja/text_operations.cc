#include "chat/jinja/text_operations.h"

#include <algorithm>

#include "base/utf8.h"
#include "chat/jinja/unicode.h"

namespace mlxcel::jinja {
namespace {

// Where a line ends as str.splitlines sees it; 0 when there is no line end at `at`.
size_t line_end_size(std::string_view text, size_t at) {
  const char c = text[at];
  if (c == '\r') return at + 1 < text.size() && text[at + 1] == '\n' ? 2 : 1;
  if (c == '\n' || c == '\v' || c == '\f' || (c >= '\x1c' && c <= '\x1e')) return 1;
  const Utf8Char character = decode_utf8(text, at);
  return character.code == 0x85 || character.code == 0x2028 || character.code == 0x2029 ? character.size : 0;
}

size_t next_space(std::string_view text, size_t at) {
  while (at < text.size()) {
    const Utf8Char c = decode_utf8(text, at);
    if (is_space(c.code)) break;
    at += c.size;
  }
  return at;
}

std::string repeated(Runtime& runtime, const std::string& fill, size_t size, uint64_t count) {
  if (count > runtime.limits().max_value_bytes / fill.size()) fail_limit("a padded string grew too long");
  runtime.check_bytes(size + count * fill.size());
  std::string out;
  out.reserve(count * fill.size());
  for (uint64_t i = 0; i < count; ++i) out += fill;
  return out;
}

}  // namespace

Text strip(const Text& text, const std::optional<std::string>& characters, Side side) {
  const std::string_view bytes = text.bytes();
  size_t begin = 0, end = bytes.size();
  if (!characters.has_value()) {
    if (side != Side::kRight) begin = leading_space(bytes);
    if (side != Side::kLeft) end -= trailing_space(bytes.substr(begin));
    return text.slice(begin, end);
  }
  std::u32string set = to_utf32(*characters);
  std::sort(set.begin(), set.end());
  const auto is_stripped = [&](size_t at) {
    return std::binary_search(set.begin(), set.end(), decode_utf8(bytes, at).code);
  };
  if (side != Side::kRight) {
    while (begin < end && is_stripped(begin)) begin += decode_utf8(bytes, begin).size;
  }
  if (side != Side::kLeft) {
    while (end > begin) {
      const size_t last = previous_character(bytes, end);
      if (last < begin || !is_stripped(last)) break;
      end = last;
    }
  }
  return text.slice(begin, end);
}

Text replace(Runtime& runtime, const Text& text, const Text& from, const Text& to, int64_t count) {
  const std::string& bytes = text.bytes();
  Text result;
  const auto add = [&](const Text& source, size_t begin, size_t end) {
    runtime.check_bytes(result.size() + (end - begin));
    result.append(source, begin, end);
  };
  constexpr int64_t kHitsPerStep = 4;
  int64_t hits = 0;
  size_t at = 0;
  while (count != 0 && at <= bytes.size()) {
    const size_t hit = bytes.find(from.bytes(), at);
    if (hit == std::string::npos) break;
    if (++hits % kHitsPerStep == 0) runtime.step();
    add(text, at, hit);
    add(to, 0, to.size());
    at = hit + from.size();
    if (count > 0) --count;
    if (!from.empty()) continue;
    if (at >= bytes.size()) {  // the empty string matches before every character and at the end
      at = bytes.size();
      break;
    }
    const size_t size = decode_utf8(bytes, at).size;
    add(text, at, at + size);
    at += size;
  }
  add(text, at, bytes.size());
  result.set_markup(text.is_markup());
  return result;
}

std::vector<Text> split_lines(const Text& text, bool keep_ends) {
  std::vector<Text> lines;
  const std::string_view bytes = text.bytes();
  size_t begin = 0;
  for (size_t at = 0; at < bytes.size();) {
    const size_t end = line_end_size(bytes, at);
    if (end == 0) {
      at += decode_utf8(bytes, at).size;
      continue;
    }
    lines.push_back(text.slice(begin, keep_ends ? at + end : at));
    begin = at += end;
  }
  if (begin < bytes.size()) lines.push_back(text.slice(begin, bytes.size()));
  return lines;
}

std::vector<Text> split_space(const Text& text, int64_t limit) {
  std::vector<Text> words;
  const std::string_view bytes = text.bytes();
  size_t at = leading_space(bytes);
  while (at < bytes.size()) {
    if (limit >= 0 && static_cast<int64_t>(words.size()) == limit) {
      words.push_back(text.slice(at, bytes.size() - trailing_space(bytes.substr(at))));
      break;
    }
    const size_t end = next_space(bytes, at);
    words.push_back(text.slice(at, end));
    at = end + leading_space(bytes.substr(end));
  }
  return words;
}

std::vector<Text> split_space_from_right(const Text& text, int64_t limit) {
  std::vector<Text> words = split_space(text, -1);
  if (limit < 0 || static_cast<int64_t>(words.size()) <= limit) return words;
  // Walk back over `limit` words; what is left of them stays one piece.
  const std::string_view bytes = text.bytes();
  size_t end = bytes.size();
  for (int64_t i = 0; i < limit; ++i) {
    end -= trailing_space(bytes.substr(0, end));
    while (end > 0 && !is_space(decode_utf8(bytes, previous_character(bytes, end)).code)) {
      end = previous_character(bytes, end);
    }
  }
  end -= trailing_space(bytes.substr(0, end));
  std::vector<Text> result = {text.slice(leading_space(bytes), end)};
  result.insert(result.end(), words.end() - static_cast<std::ptrdiff_t>(limit), words.end());
  return result;
}

std::vector<Text> split(const Text& text, const std::string& separator, int64_t limit) {
  if (separator.empty()) fail("empty separator");
  std::vector<Text> pieces;
  size_t begin = 0;
  while (limit < 0 || static_cast<int64_t>(pieces.size()) < limit) {
    const size_t hit = text.bytes().find(separator, begin);
    if (hit == std::string::npos) break;
    pieces.push_back(text.slice(begin, hit));
    begin = hit + separator.size();
  }
  pieces.push_back(text.slice(begin, text.size()));
  return pieces;
}

std::vector<Text> split_from_right(const Text& text, const std::string& separator, int64_t limit) {
  if (separator.empty()) fail("empty separator");
  std::vector<Text> pieces;
  size_t end = text.size();
  while (limit < 0 || static_cast<int64_t>(pieces.size()) < limit) {
    if (end < separator.size()) break;
    const size_t hit = text.bytes().rfind(separator, end - separator.size());
    if (hit == std::string::npos) break;
    pieces.push_back(text.slice(hit + separator.size(), end));
    end = hit;
  }
  pieces.push_back(text.slice(0, end));
  std::reverse(pieces.begin(), pieces.end());
  return pieces;
}

Text center(Runtime& runtime, const Text& text, int64_t width, const std::string& fill) {
  const auto length = static_cast<int64_t>(count_code_points(text.bytes()));
  if (width <= length) return text;
  const int64_t missing = width - length;
  const int64_t before = missing / 2 + (missing & width & 1);
  Text result(repeated(runtime, fill, text.size(), static_cast<uint64_t>(before)));
  result.append(text);
  result.append(repeated(runtime, fill, result.size(), static_cast<uint64_t>(missing - before)), false);
  result.set_markup(text.is_markup());
  return result;
}

Text justify(Runtime& runtime, const Text& text, int64_t width, const std::string& fill, bool to_left) {
  const auto length = static_cast<int64_t>(count_code_points(text.bytes()));
  if (width <= length) return text;
  const std::string padding = repeated(runtime, fill, text.size(), static_cast<uint64_t>(width - length));
  Text result;
  if (!to_left) result.append(padding, false);
  result.append(text);
  if (to_left) result.append(padding, false);
  result.set_markup(text.is_markup());
  return result;
}

Text join(Runtime& runtime, const Text& separator, const std::vector<Text>& pieces) {
  Text result;
  for (size_t i = 0; i < pieces.size(); ++i) {
    runtime.check_bytes(result.size() + pieces[i].size() + separator.size());
    if (i > 0) result.append(separator);
    result.append(pieces[i]);
  }
  return result;
}

Value texts(Runtime& runtime, std::vector<Text> pieces) {
  std::vector<Value> items;
  runtime.check_items(pieces.size());
  items.reserve(pieces.size());
  for (Text& piece : pieces) items.push_back(runtime.string(std::move(piece)));
  return runtime.list(std::move(items));
}

}  // namespace mlxcel::jinja
