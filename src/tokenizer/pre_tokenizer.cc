#include "tokenizer/pre_tokenizer.h"

#include <algorithm>

#include "base/utf8.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/pattern.h"
#include "tokenizer/unicode.h"

namespace mlxcel {
namespace {

// What happens to the matches of a splitting pattern.
enum class Behavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

struct Part {
  size_t begin, end;
  bool is_match;
};

// Turns the row of matches and gaps of one piece, which covers it, into the pieces that replace it.
void append_parts(std::vector<Part>& parts, Behavior behavior, size_t base, std::vector<PieceRange>& out) {
  std::vector<Part> merged;
  switch (behavior) {
    case Behavior::kRemoved:
      for (const Part& part : parts)
        if (!part.is_match) merged.push_back(part);
      break;
    case Behavior::kIsolated:
      merged.swap(parts);
      break;
    case Behavior::kContiguous:
      for (const Part& part : parts) {
        if (!merged.empty() && merged.back().is_match == part.is_match)
          merged.back().end = part.end;
        else
          merged.push_back(part);
      }
      break;
    case Behavior::kMergedWithPrevious: {
      bool was_match = false;
      for (const Part& part : parts) {
        if (part.is_match && !was_match && !merged.empty())
          merged.back().end = part.end;
        else
          merged.push_back(part);
        was_match = part.is_match;
      }
      break;
    }
    case Behavior::kMergedWithNext: {
      bool was_match = false;
      for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
        if (part->is_match && !was_match && !merged.empty())
          merged.back().begin = part->begin;
        else
          merged.push_back(*part);
        was_match = part->is_match;
      }
      std::reverse(merged.begin(), merged.end());
      break;
    }
  }
  for (const Part& part : merged)
    if (part.begin < part.end) out.push_back({base + part.begin, base + part.end});
}

// Replaces every piece by the parts that collect(piece, parts) finds in it.
template <typename Collect>
void split_pieces(Pieces& pieces, Behavior behavior, Collect&& collect) {
  std::vector<PieceRange> out;
  out.reserve(pieces.ranges.size() * 2);
  std::vector<Part> parts;
  for (const PieceRange& range : pieces.ranges) {
    parts.clear();
    collect(std::string_view(pieces.text).substr(range.begin, range.end - range.begin), parts);
    append_parts(parts, behavior, range.begin, out);
  }
  pieces.ranges = std::move(out);
}

void collect_pattern(const Pattern& pattern, bool invert, std::string_view text, RegexScratch& scratch,
                     std::vector<Part>& parts) {
  size_t done = 0;
  pattern.for_each(text, scratch, [&](size_t begin, size_t end) {
    if (done < begin) parts.push_back({done, begin, invert});
    parts.push_back({begin, end, !invert});
    done = end;
  });
  if (done < text.size()) parts.push_back({done, text.size(), invert});
}

// Each character for which is_delimiter(code) holds is one match.
template <typename Predicate>
void collect_characters(std::string_view text, Predicate&& is_delimiter, std::vector<Part>& parts) {
  size_t gap = 0;
  for (size_t position = 0; position < text.size();) {
    const Utf8Char c = decode_utf8(text, position);
    const size_t end = position + c.size;
    if (is_delimiter(c.code)) {
      if (gap < position) parts.push_back({gap, position, false});
      parts.push_back({position, end, true});
      gap = end;
    }
    position = end;
  }
  if (gap < text.size()) parts.push_back({gap, text.size(), false});
}

class PatternSplitter : public PreTokenizer {
 public:
  PatternSplitter(Pattern pattern, Behavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}
  void apply(Pieces& pieces, RegexScratch& scratch) const override {
    split_pieces(pieces, behavior_, [&](std::string_view text, std::vector<Part>& parts) {
      collect_pattern(pattern_, invert_, text, scratch, parts);
    });
  }

 private:
  Pattern pattern_;
  Behavior behavior_;
  bool invert_;
};

using Predicate = bool (*)(char32_t);

class CharacterSplitter : public PreTokenizer {
 public:
  CharacterSplitter(Predicate predicate, Behavior behavior) : predicate_(predicate), behavior_(behavior) {}
  void apply(Pieces& pieces, RegexScratch&) const override {
    split_pieces(pieces, behavior_, [&](std::string_view text, std::vector<Part>& parts) {
      collect_characters(text, predicate_, parts);
    });
  }

 private:
  Predicate predicate_;
  Behavior behavior_;
};

class DelimiterSplitter : public PreTokenizer {
 public:
  explicit DelimiterSplitter(char32_t delimiter) : delimiter_(delimiter) {}
  void apply(Pieces& pieces, RegexScratch&) const override {
    split_pieces(pieces, Behavior::kRemoved, [&](std::string_view text, std::vector<Part>& parts) {
      collect_characters(
          text, [&](char32_t code) { return code == delimiter_; }, parts);
    });
  }

 private:
  char32_t delimiter_;
};

// Runs of word characters, runs of what is neither word character nor space; spaces vanish.
class WhitespaceSplitter : public PreTokenizer {
 public:
  void apply(Pieces& pieces, RegexScratch&) const override {
    std::vector<PieceRange> out;
    for (const PieceRange& range : pieces.ranges) {
      Kind last = Kind::kSpace;
      const std::string_view text = std::string_view(pieces.text).substr(0, range.end);
      for (size_t position = range.begin; position < range.end;) {
        const Utf8Char c = decode_utf8(text, position);
        const size_t end = position + c.size;
        const Kind kind = kind_of(c.code);
        if (kind != Kind::kSpace) {
          if (kind == last)
            out.back().end = end;
          else
            out.push_back({position, end});
        }
        last = kind;
        position = end;
      }
    }
    pieces.ranges = std::move(out);
  }

 private:
  enum class Kind { kSpace, kWord, kOther };
  static Kind kind_of(char32_t code) {
    if (unicode::is_word_character(code)) return Kind::kWord;
    return unicode::is_white_space(code) ? Kind::kSpace : Kind::kOther;
  }
};

class BertSplitter : public PreTokenizer {
 public:
  void apply(Pieces& pieces, RegexScratch&) const override {
    split_pieces(pieces, Behavior::kRemoved, [](std::string_view text, std::vector<Part>& parts) {
      collect_characters(text, unicode::is_white_space, parts);
    });
    split_pieces(pieces, Behavior::kIsolated, [](std::string_view text, std::vector<Part>& parts) {
      collect_characters(text, unicode::is_punctuation, parts);
    });
  }
};

// Copies the pieces into a new text, each one through rewrite(piece, is_first, out).
template <typename Rewrite>
void rewrite_pieces(Pieces& pieces, Rewrite&& rewrite) {
  std::string text;
  text.reserve(pieces.text.size() + pieces.text.size() / 2 + 8);
  for (size_t i = 0; i < pieces.ranges.size(); ++i) {
    PieceRange& range = pieces.ranges[i];
    const size_t begin = text.size();
    rewrite(std::string_view(pieces.text).substr(range.begin, range.end - range.begin), i == 0, text);
    range = {begin, text.size()};
  }
  pieces.text = std::move(text);
}

class ByteLevelSplitter : public PreTokenizer {
 public:
  ByteLevelSplitter(bool add_prefix_space, std::unique_ptr<const PreTokenizer> regex, bool maps_bytes)
      : add_prefix_space_(add_prefix_space), regex_(std::move(regex)), maps_bytes_(maps_bytes) {}
  void apply(Pieces& pieces, RegexScratch& scratch) const override {
    if (add_prefix_space_)
      rewrite_pieces(pieces, [](std::string_view piece, bool, std::string& out) {
        if (!piece.starts_with(' ')) out.push_back(' ');
        out.append(piece);
      });
    if (regex_ != nullptr) regex_->apply(pieces, scratch);
    if (maps_bytes_)
      rewrite_pieces(pieces,
                     [](std::string_view piece, bool, std::string& out) { out += to_byte_alphabet(piece); });
  }

 private:
  bool add_prefix_space_;
  std::unique_ptr<const PreTokenizer> regex_;
  bool maps_bytes_;
};

enum class PrependScheme { kAlways, kFirst, kNever };

class MetaspaceSplitter : public PreTokenizer {
 public:
  MetaspaceSplitter(std::string replacement, PrependScheme scheme, bool split)
      : replacement_(std::move(replacement)), scheme_(scheme), split_(split) {}
  void apply(Pieces& pieces, RegexScratch&) const override {
    const bool is_text_start = pieces.is_text_start;
    rewrite_pieces(pieces, [&](std::string_view piece, bool is_first, std::string& out) {
      const bool wants_prefix = scheme_ == PrependScheme::kAlways ||
                                (scheme_ == PrependScheme::kFirst && is_first && is_text_start);
      if (wants_prefix && !piece.starts_with(' ') && !piece.starts_with(replacement_)) out += replacement_;
      for (const char c : piece) {
        if (c == ' ')
          out += replacement_;
        else
          out.push_back(c);
      }
    });
    if (!split_) return;
    const char32_t symbol = decode_utf8(replacement_, 0).code;
    split_pieces(pieces, Behavior::kMergedWithNext, [&](std::string_view text, std::vector<Part>& parts) {
      collect_characters(
          text, [&](char32_t code) { return code == symbol; }, parts);
    });
  }

 private:
  std::string replacement_;
  PrependScheme scheme_;
  bool split_;
};

class SequenceSplitter : public PreTokenizer {
 public:
  explicit SequenceSplitter(std::vector<std::unique_ptr<const PreTokenizer>> parts)
      : parts_(std::move(parts)) {}
  void apply(Pieces& pieces, RegexScratch& scratch) const override {
    for (const auto& part : parts_) part->apply(pieces, scratch);
  }

 private:
  std::vector<std::unique_ptr<const PreTokenizer>> parts_;
};

using Splitter = std::unique_ptr<const PreTokenizer>;

Result<Behavior> parse_behavior(const JsonReader& reader, std::optional<std::string> fallback) {
  MLXCEL_ASSIGN_OR_RETURN(const std::string name, reader.string("behavior", std::move(fallback)));
  if (name == "Removed") return Behavior::kRemoved;
  if (name == "Isolated") return Behavior::kIsolated;
  if (name == "MergedWithPrevious") return Behavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return Behavior::kMergedWithNext;
  if (name == "Contiguous") return Behavior::kContiguous;
  return make_error(ErrorKind::kUnsupported, "split behaviour is unknown", reader.where() + ".behavior",
                    "Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous", name);
}

Result<Splitter> parse_split(const JsonReader& reader) {
  MLXCEL_ASSIGN_OR_RETURN(Pattern pattern,
                          Pattern::parse(reader.object().find("pattern"), reader.where() + ".pattern"));
  MLXCEL_ASSIGN_OR_RETURN(const Behavior behavior, parse_behavior(reader, std::nullopt));
  MLXCEL_ASSIGN_OR_RETURN(const bool invert, reader.boolean("invert", false));
  return Splitter(std::make_unique<const PatternSplitter>(std::move(pattern), behavior, invert));
}

Result<Splitter> parse_byte_level(const JsonReader& reader, bool maps_bytes) {
  MLXCEL_ASSIGN_OR_RETURN(const bool add_prefix_space, reader.boolean("add_prefix_space", true));
  MLXCEL_ASSIGN_OR_RETURN(const bool use_regex, reader.boolean("use_regex", true));
  Splitter regex;
  if (use_regex) {
    MLXCEL_ASSIGN_OR_RETURN(regex, make_pattern_splitter({gpt2_pattern()}, reader.where()));
  }
  return Splitter(std::make_unique<const ByteLevelSplitter>(add_prefix_space, std::move(regex), maps_bytes));
}

Result<std::string> parse_one_character(const JsonReader& reader, std::string_view key,
                                        std::optional<std::string> fallback) {
  MLXCEL_ASSIGN_OR_RETURN(std::string text, reader.string(key, std::move(fallback)));
  if (text.empty() || decode_utf8(text, 0).size != text.size())
    return reader.type_error(key, "one character");
  return text;
}

Result<Splitter> parse_metaspace(const JsonReader& reader, bool& needs_text_start) {
  MLXCEL_ASSIGN_OR_RETURN(std::string replacement,
                          parse_one_character(reader, "replacement", "\xE2\x96\x81"));
  // Older files have add_prefix_space instead of the scheme.
  MLXCEL_ASSIGN_OR_RETURN(const bool add_prefix_space, reader.boolean("add_prefix_space", true));
  MLXCEL_ASSIGN_OR_RETURN(
      const std::string name,
      reader.string("prepend_scheme", std::string(add_prefix_space ? "always" : "never")));
  MLXCEL_ASSIGN_OR_RETURN(const bool split, reader.boolean("split", true));
  PrependScheme scheme = PrependScheme::kAlways;
  if (name == "first") {
    scheme = PrependScheme::kFirst;
    needs_text_start = true;
  } else if (name == "never") {
    scheme = PrependScheme::kNever;
  } else if (name != "always") {
    return make_error(ErrorKind::kUnsupported, "prepend scheme is unknown",
                      reader.where() + ".prepend_scheme", "always, first or never", name);
  }
  return Splitter(std::make_unique<const MetaspaceSplitter>(std::move(replacement), scheme, split));
}

// One pre-tokenizer; `is_last` says that nothing follows, so that ByteLevel may leave the bytes to the model.
Result<ParsedPreTokenizer> parse_one(const JsonValue& value, const std::string& where, bool is_last);

Result<ParsedPreTokenizer> parse_sequence(const JsonValue& value, const std::string& where, bool is_last) {
  const JsonValue* list = value.find_set("pretokenizers");
  if (list == nullptr || !list->is_array())
    return make_error(ErrorKind::kInvalidData, "Sequence has no list of pre-tokenizers",
                      where + ".pretokenizers", "an array");
  ParsedPreTokenizer result;
  std::vector<Splitter> parts;
  const size_t count = list->as_array().size();
  for (size_t i = 0; i < count; ++i) {
    MLXCEL_ASSIGN_OR_RETURN(
        ParsedPreTokenizer part,
        parse_one(list->as_array()[i], where + ".pretokenizers[" + std::to_string(i) + "]",
                  is_last && i + 1 == count));
    if (part.splitter == nullptr) continue;
    parts.push_back(std::move(part.splitter));
    result.ends_in_bytes = part.ends_in_bytes;
    result.needs_text_start = result.needs_text_start || part.needs_text_start;
  }
  if (!parts.empty()) result.splitter = std::make_unique<const SequenceSplitter>(std::move(parts));
  return result;
}

Result<ParsedPreTokenizer> parse_one(const JsonValue& value, const std::string& where, bool is_last) {
  const JsonReader reader(value, where);
  MLXCEL_ASSIGN_OR_RETURN(const std::string type, reader.string("type"));
  ParsedPreTokenizer result;
  const auto characters = [](Predicate predicate, Behavior behavior) {
    return std::make_unique<const CharacterSplitter>(predicate, behavior);
  };
  if (type == "Sequence") return parse_sequence(value, where, is_last);
  if (type == "ByteLevel") {
    MLXCEL_ASSIGN_OR_RETURN(result.splitter, parse_byte_level(reader, !is_last));
    result.ends_in_bytes = is_last;
  } else if (type == "Split") {
    MLXCEL_ASSIGN_OR_RETURN(result.splitter, parse_split(reader));
  } else if (type == "Metaspace") {
    MLXCEL_ASSIGN_OR_RETURN(result.splitter, parse_metaspace(reader, result.needs_text_start));
  } else if (type == "Digits") {
    MLXCEL_ASSIGN_OR_RETURN(const bool individual, reader.boolean("individual_digits", false));
    result.splitter =
        characters(unicode::is_numeric, individual ? Behavior::kIsolated : Behavior::kContiguous);
  } else if (type == "Punctuation") {
    MLXCEL_ASSIGN_OR_RETURN(const Behavior behavior, parse_behavior(reader, "Isolated"));
    result.splitter = characters(unicode::is_punctuation, behavior);
  } else if (type == "WhitespaceSplit") {
    result.splitter = characters(unicode::is_white_space, Behavior::kRemoved);
  } else if (type == "Whitespace") {
    result.splitter = std::make_unique<const WhitespaceSplitter>();
  } else if (type == "BertPreTokenizer") {
    result.splitter = make_bert_splitter();
  } else if (type == "CharDelimiterSplit") {
    MLXCEL_ASSIGN_OR_RETURN(const std::string delimiter,
                            parse_one_character(reader, "delimiter", std::nullopt));
    result.splitter = std::make_unique<const DelimiterSplitter>(decode_utf8(delimiter, 0).code);
  } else {
    return make_error(ErrorKind::kUnsupported, "pre-tokenizer type is unknown", where + ".type",
                      "a pre-tokenizer of the tokenizers library", type);
  }
  return result;
}

}  // namespace

Result<ParsedPreTokenizer> parse_pre_tokenizer(const JsonValue* value, const std::string& where) {
  if (value == nullptr || value->is_null()) return ParsedPreTokenizer();
  return parse_one(*value, where, true);
}

Result<Splitter> make_pattern_splitter(const std::vector<std::string_view>& patterns,
                                       const std::string& where) {
  std::vector<Splitter> parts;
  for (const std::string_view text : patterns) {
    MLXCEL_ASSIGN_OR_RETURN(Pattern pattern, Pattern::regex(text, where));
    parts.push_back(std::make_unique<const PatternSplitter>(std::move(pattern), Behavior::kIsolated, false));
  }
  return Splitter(std::make_unique<const SequenceSplitter>(std::move(parts)));
}

Splitter make_bert_splitter() { return std::make_unique<const BertSplitter>(); }

std::string_view gpt2_pattern() {
  return R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
}

}  // namespace mlxcel
