// A string that remembers which of its bytes came from the conversation ("content") and which from the
// template. The origin survives concatenation and slicing byte by byte; a function that rewrites its input
// marks everything it made as content as soon as any of the input was (see derived_like).
//
// Owner: value type. Threads: none shared. Invariants: flips_ is strictly ascending, every offset in (0,
// size).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace mlxcel::jinja {

class Text {
 public:
  Text() = default;
  explicit Text(std::string bytes, bool is_content = false)
      : bytes_(std::move(bytes)), starts_as_content_(is_content && !bytes_.empty()) {}

  const std::string& bytes() const { return bytes_; }
  size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  bool has_content() const { return starts_as_content_ || !flips_.empty(); }
  bool is_content_at(size_t position) const;

  // Markup: text that {% autoescape true %} prints unescaped (the result of |safe and |escape).
  bool is_markup() const { return is_markup_; }
  void set_markup(bool markup) { is_markup_ = markup; }

  void append(std::string_view piece, bool is_content);
  void append(const Text& piece);
  void append(const Text& piece, size_t begin, size_t end);  // REQUIRES: begin <= end <= piece.size()
  // Bytes [begin, end) with their origins; keeps the markup flag. REQUIRES: begin <= end <= size().
  Text slice(size_t begin, size_t end) const;
  void truncate(size_t new_size);  // REQUIRES: new_size <= size()

  // Calls visit(begin, end, is_content) for each maximal piece of one origin.
  template <typename Visit>
  void for_each_piece(size_t begin, size_t end, Visit visit) const {
    bool is_content = starts_as_content_;
    size_t at = 0;
    for (size_t i = 0; i <= flips_.size(); ++i) {
      const size_t next = i < flips_.size() ? flips_[i] : bytes_.size();
      const size_t from = at < begin ? begin : at;
      const size_t to = next < end ? next : end;
      if (from < to) visit(from, to, is_content);
      if (next >= end) return;
      at = next;
      is_content = !is_content;
    }
  }

 private:
  bool ends_as_content() const { return starts_as_content_ != (flips_.size() % 2 == 1); }

  std::string bytes_;
  bool starts_as_content_ = false;
  bool is_markup_ = false;
  std::vector<size_t> flips_;  // offsets where the origin changes
};

}  // namespace mlxcel::jinja
