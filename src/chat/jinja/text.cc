#include "chat/jinja/text.h"

#include <algorithm>

namespace mlxcel::jinja {

bool Text::is_content_at(size_t position) const {
  const auto passed = std::upper_bound(flips_.begin(), flips_.end(), position) - flips_.begin();
  return starts_as_content_ != (passed % 2 == 1);
}

void Text::append(std::string_view piece, bool is_content) {
  if (piece.empty()) return;
  if (bytes_.empty()) {
    starts_as_content_ = is_content;
  } else if (ends_as_content() != is_content) {
    flips_.push_back(bytes_.size());
  }
  bytes_.append(piece);
}

void Text::append(const Text& piece) { append(piece, 0, piece.size()); }

void Text::append(const Text& piece, size_t begin, size_t end) {
  if (&piece == this) {
    const Text copy = piece;
    append(copy, begin, end);
    return;
  }
  if (piece.flips_.empty()) {
    append(std::string_view(piece.bytes_).substr(begin, end - begin), piece.starts_as_content_);
    return;
  }
  piece.for_each_piece(begin, end, [&](size_t from, size_t to, bool is_content) {
    append(std::string_view(piece.bytes_).substr(from, to - from), is_content);
  });
}

Text Text::slice(size_t begin, size_t end) const {
  Text result;
  result.append(*this, begin, end);
  result.is_markup_ = is_markup_;
  return result;
}

void Text::truncate(size_t new_size) {
  bytes_.resize(new_size);
  while (!flips_.empty() && flips_.back() >= new_size) flips_.pop_back();
  if (new_size == 0) starts_as_content_ = false;
}

}  // namespace mlxcel::jinja
