#include "tokenizer/charsmap.h"

namespace mlxcel {
namespace {

uint32_t little_endian_u32(std::string_view bytes, size_t at) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) value |= uint32_t{static_cast<unsigned char>(bytes[at + i])} << (8 * i);
  return value;
}

// The fields of a unit.
bool has_leaf(uint32_t unit) { return ((unit >> 8) & 1) != 0; }
uint32_t label(uint32_t unit) { return unit & ((uint32_t{1} << 31) | 0xFF); }
uint32_t offset(uint32_t unit) { return (unit >> 10) << ((unit & (uint32_t{1} << 9)) >> 6); }
uint32_t value(uint32_t unit) { return unit & ((uint32_t{1} << 31) - 1); }

}  // namespace

Result<Charsmap> Charsmap::parse(std::string_view bytes, const std::string& where) {
  if (bytes.size() < 4)
    return make_error(ErrorKind::kInvalidData, "character map is truncated", where, "at least 4 bytes",
                      std::to_string(bytes.size()));
  const size_t trie_bytes = little_endian_u32(bytes, 0);
  if (trie_bytes % 4 != 0 || trie_bytes == 0 || trie_bytes > bytes.size() - 4)
    return make_error(ErrorKind::kInvalidData, "character map has a bad trie size", where,
                      "a multiple of 4 of at most " + std::to_string(bytes.size() - 4),
                      std::to_string(trie_bytes));
  Charsmap map;
  map.units_.resize(trie_bytes / 4);
  for (size_t i = 0; i < map.units_.size(); ++i) map.units_[i] = little_endian_u32(bytes, 4 + i * 4);
  map.replacements_ = std::string(bytes.substr(4 + trie_bytes));
  return map;
}

std::optional<Charsmap::Match> Charsmap::prefix(std::string_view text, bool longest) const {
  std::optional<Match> found;
  size_t node = offset(units_[0]);
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte == 0) break;
    node ^= byte;
    if (node >= units_.size() || label(units_[node]) != byte) break;
    const uint32_t unit = units_[node];
    node ^= offset(unit);
    if (!has_leaf(unit)) continue;
    if (node >= units_.size()) break;
    const size_t begin = value(units_[node]);
    if (begin > replacements_.size()) break;
    const size_t end = std::min(replacements_.find('\0', begin), replacements_.size());
    found = Match{i + 1, std::string_view(replacements_).substr(begin, end - begin)};
    if (!longest) break;
  }
  return found;
}

}  // namespace mlxcel
