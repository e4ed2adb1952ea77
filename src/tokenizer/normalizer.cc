#include "tokenizer/normalizer.h"

#include <limits>
#include <numeric>
#include <optional>

#include "base/utf8.h"
#include "tokenizer/base64.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/charsmap.h"
#include "tokenizer/pattern.h"
#include "tokenizer/unicode.h"

namespace mlxcel {

NormalizedText NormalizedText::from(std::string_view original, bool with_origins) {
  MLXCEL_CHECK(original.size() < std::numeric_limits<uint32_t>::max());
  NormalizedText result;
  result.text = std::string(original);
  result.has_origins = with_origins;
  if (with_origins) {
    result.origins.resize(original.size());
    std::iota(result.origins.begin(), result.origins.end(), uint32_t{0});
  }
  return result;
}

TextBuilder::TextBuilder(const NormalizedText& source, NormalizedText& out) : source_(source), out_(out) {
  out_.has_origins = source.has_origins;
  out_.text.reserve(source.text.size());
}

void TextBuilder::append(std::string_view text, size_t source_position) {
  out_.text.append(text);
  if (out_.has_origins) {
    const uint32_t origin = source_position < source_.origins.size() ? source_.origins[source_position] : 0;
    out_.origins.resize(out_.text.size(), origin);
  }
}

void TextBuilder::copy(size_t begin, size_t end) {
  out_.text.append(source_.text, begin, end - begin);
  if (out_.has_origins)
    out_.origins.insert(out_.origins.end(), source_.origins.begin() + static_cast<std::ptrdiff_t>(begin),
                        source_.origins.begin() + static_cast<std::ptrdiff_t>(end));
}

namespace {

// Runs `rewrite(builder)` from the old text into a new one.
template <typename Rewrite>
void rebuild(NormalizedText& text, Rewrite&& rewrite) {
  NormalizedText out;
  TextBuilder builder(text, out);
  rewrite(builder);
  text = std::move(out);
}

template <typename Visitor>
void for_each_character(std::string_view text, Visitor&& visit) {
  for (size_t position = 0; position < text.size();) {
    const Utf8Char c = decode_utf8(text, position);
    visit(c.code, position, position + c.size);
    position += c.size;
  }
}

// Keeps the characters for which keep(code) holds.
template <typename Keep>
void filter(NormalizedText& text, Keep&& keep) {
  rebuild(text, [&](TextBuilder& out) {
    for_each_character(text.text, [&](char32_t code, size_t begin, size_t end) {
      if (keep(code)) out.copy(begin, end);
    });
  });
}

bool is_ascii(std::string_view text) {
  for (const char c : text)
    if (static_cast<unsigned char>(c) >= 0x80) return false;
  return true;
}

void normalize_form(NormalizedText& text, unicode::Form form) {
  if (is_ascii(text.text)) return;
  std::string buffer;
  rebuild(text, [&](TextBuilder& out) {
    for (size_t begin = 0; begin < text.text.size();) {
      const unicode::Segment segment = unicode::next_normalization_segment(text.text, begin, form);
      buffer.clear();
      const std::string_view source =
          std::string_view(text.text).substr(segment.begin, segment.end - segment.begin);
      unicode::append_normalized(buffer, source, form);
      if (buffer == source)
        out.copy(segment.begin, segment.end);
      else
        out.append(buffer, segment.begin);
      begin = segment.end;
    }
  });
}

void lower_case(NormalizedText& text) {
  std::string buffer;
  rebuild(text, [&](TextBuilder& out) {
    for_each_character(text.text, [&](char32_t code, size_t begin, size_t) {
      buffer.clear();
      unicode::append_lower_case(buffer, code);
      out.append(buffer, begin);
    });
  });
}

class FormNormalizer : public Normalizer {
 public:
  explicit FormNormalizer(unicode::Form form) : form_(form) {}
  void apply(NormalizedText& text, RegexScratch&) const override { normalize_form(text, form_); }

 private:
  unicode::Form form_;
};

class LowercaseNormalizer : public Normalizer {
 public:
  void apply(NormalizedText& text, RegexScratch&) const override { lower_case(text); }
};

class StripAccentsNormalizer : public Normalizer {
 public:
  void apply(NormalizedText& text, RegexScratch&) const override {
    filter(text, [](char32_t code) { return !unicode::is_mark(code); });
  }
};

class StripNormalizer : public Normalizer {
 public:
  StripNormalizer(bool left, bool right) : left_(left), right_(right) {}
  void apply(NormalizedText& text, RegexScratch&) const override {
    size_t first = std::string::npos;
    size_t last = 0;
    for_each_character(text.text, [&](char32_t code, size_t begin, size_t end) {
      if (unicode::is_white_space(code)) return;
      if (first == std::string::npos) first = begin;
      last = end;
    });
    if (first == std::string::npos) {  // nothing but spaces
      if (left_ || right_) text = NormalizedText::from("", text.has_origins);
      return;
    }
    const size_t begin = left_ ? first : 0;
    const size_t end = right_ ? last : text.text.size();
    if (begin == 0 && end == text.text.size()) return;
    rebuild(text, [&](TextBuilder& out) { out.copy(begin, end); });
  }

 private:
  bool left_, right_;
};

class ReplaceNormalizer : public Normalizer {
 public:
  ReplaceNormalizer(Pattern pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  void apply(NormalizedText& text, RegexScratch& scratch) const override {
    rebuild(text, [&](TextBuilder& out) {
      size_t done = 0;
      pattern_.for_each(text.text, scratch, [&](size_t begin, size_t end) {
        out.copy(done, begin);
        out.append(content_, begin);
        done = end;
      });
      out.copy(done, text.text.size());
    });
  }

 private:
  Pattern pattern_;
  std::string content_;
};

class PrependNormalizer : public Normalizer {
 public:
  explicit PrependNormalizer(std::string prefix) : prefix_(std::move(prefix)) {}
  void apply(NormalizedText& text, RegexScratch&) const override {
    if (text.text.empty()) return;
    rebuild(text, [&](TextBuilder& out) {
      out.append(prefix_, 0);
      out.copy(0, text.text.size());
    });
  }

 private:
  std::string prefix_;
};

class ByteLevelNormalizer : public Normalizer {
 public:
  void apply(NormalizedText& text, RegexScratch&) const override {
    std::string symbol;
    rebuild(text, [&](TextBuilder& out) {
      for (size_t i = 0; i < text.text.size(); ++i) {
        symbol.clear();
        append_utf8(symbol, byte_to_alphabet(static_cast<unsigned char>(text.text[i])));
        out.append(symbol, i);
      }
    });
  }
};

// As the tokenizers library applies the map: grapheme clusters of fewer than six bytes as a whole where the
// map knows their start, everything else character by character.
class PrecompiledNormalizer : public Normalizer {
 public:
  explicit PrecompiledNormalizer(Charsmap map) : map_(std::move(map)) {}
  void apply(NormalizedText& text, RegexScratch&) const override {
    const std::string_view all = text.text;
    rebuild(text, [&](TextBuilder& out) {
      for (size_t begin = 0; begin < all.size();) {
        const size_t end = unicode::grapheme_end(all, begin);
        if (end - begin < kGraphemeBytesMax) {
          if (const auto match = map_.shortest_prefix(all.substr(begin, end - begin))) {
            out.append(match->replacement, begin);
            begin = end;
            continue;
          }
        }
        for_each_character(all.substr(begin, end - begin), [&](char32_t, size_t from, size_t to) {
          const auto match = map_.shortest_prefix(all.substr(begin + from, to - from));
          if (match)
            out.append(match->replacement, begin + from);
          else
            out.copy(begin + from, begin + to);
        });
        begin = end;
      }
    });
  }

 private:
  static constexpr size_t kGraphemeBytesMax = 6;
  Charsmap map_;
};

// The character clean-up of the "nmt" rules of SentencePiece.
class NmtNormalizer : public Normalizer {
 public:
  void apply(NormalizedText& text, RegexScratch&) const override {
    rebuild(text, [&](TextBuilder& out) {
      for_each_character(text.text, [&](char32_t code, size_t begin, size_t end) {
        if (is_dropped(code)) return;
        if (is_space(code))
          out.append(" ", begin);
        else
          out.copy(begin, end);
      });
    });
  }

 private:
  static bool is_dropped(char32_t c) {
    return (c >= 0x01 && c <= 0x08) || c == 0x0B || (c >= 0x0E && c <= 0x1F) || c == 0x7F || c == 0x8F ||
           c == 0x9F;
  }
  static bool is_space(char32_t c) {
    return c == 0x09 || c == 0x0A || c == 0x0C || c == 0x0D || c == 0x1680 || (c >= 0x200B && c <= 0x200F) ||
           c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xFEFF || c == 0xFFFD;
  }
};

struct BertOptions {
  bool clean_text = true;
  bool handle_chinese_chars = true;
  bool strip_accents = true;
  bool lowercase = true;
};

class BertNormalizer : public Normalizer {
 public:
  explicit BertNormalizer(const BertOptions& options) : options_(options) {}
  void apply(NormalizedText& text, RegexScratch&) const override {
    if (options_.clean_text) clean(text);
    if (options_.handle_chinese_chars) space_ideographs(text);
    if (options_.strip_accents) {
      normalize_form(text, unicode::Form::kNfd);
      filter(text, [](char32_t code) { return !unicode::is_nonspacing_mark(code); });
    }
    if (options_.lowercase) lower_case(text);
  }

 private:
  static void clean(NormalizedText& text) {
    rebuild(text, [&](TextBuilder& out) {
      for_each_character(text.text, [&](char32_t code, size_t begin, size_t end) {
        if (code == 0 || code == 0xFFFD || unicode::is_control(code)) return;
        if (unicode::is_white_space(code))
          out.append(" ", begin);
        else
          out.copy(begin, end);
      });
    });
  }
  static void space_ideographs(NormalizedText& text) {
    rebuild(text, [&](TextBuilder& out) {
      for_each_character(text.text, [&](char32_t code, size_t begin, size_t end) {
        const bool is_spaced = unicode::is_cjk_ideograph(code);
        if (is_spaced) out.append(" ", begin);
        out.copy(begin, end);
        if (is_spaced) out.append(" ", begin);
      });
    });
  }
  BertOptions options_;
};

class SequenceNormalizer : public Normalizer {
 public:
  explicit SequenceNormalizer(std::vector<std::unique_ptr<const Normalizer>> parts)
      : parts_(std::move(parts)) {}
  void apply(NormalizedText& text, RegexScratch& scratch) const override {
    for (const auto& part : parts_) part->apply(text, scratch);
  }

 private:
  std::vector<std::unique_ptr<const Normalizer>> parts_;
};

class SentencePieceNormalizer : public Normalizer {
 public:
  SentencePieceNormalizer(bool add_prefix, bool remove_extra, std::optional<Charsmap> map)
      : add_prefix_(add_prefix), remove_extra_(remove_extra), map_(std::move(map)) {}

  void apply(NormalizedText& text, RegexScratch&) const override {
    NormalizedText out;
    TextBuilder builder(text, out);
    const std::string_view all = text.text;
    size_t position = 0;
    while (remove_extra_ && position < all.size()) {  // leading spaces
      const auto [size, replacement] = next(all, position);
      if (replacement != " ") break;
      position += size;
    }
    if (position < all.size() && add_prefix_) builder.append(kSpaceSymbol, position);
    bool is_behind_space = remove_extra_;
    while (position < all.size()) {
      const auto [size, mapped] = next(all, position);
      std::string_view replacement = mapped;
      while (is_behind_space && replacement.starts_with(' ')) replacement.remove_prefix(1);
      for (const char c : replacement) {
        if (c == ' ')
          builder.append(kSpaceSymbol, position);
        else
          builder.append(std::string_view(&c, 1), position);
      }
      if (!replacement.empty()) is_behind_space = remove_extra_ && replacement.ends_with(' ');
      position += size;
    }
    while (remove_extra_ && out.text.ends_with(kSpaceSymbol)) {
      out.text.resize(out.text.size() - kSpaceSymbol.size());
      if (out.has_origins) out.origins.resize(out.text.size());
    }
    text = std::move(out);
  }

 private:
  static constexpr std::string_view kSpaceSymbol = "\xE2\x96\x81";
  struct Step {
    size_t size;
    std::string_view replacement;
  };
  Step next(std::string_view text, size_t position) const {
    if (map_) {
      if (const auto match = map_->longest_prefix(text.substr(position)))
        return {match->size, match->replacement};
    }
    const size_t size = decode_utf8(text, position).size;
    return {size, text.substr(position, size)};
  }
  bool add_prefix_, remove_extra_;
  std::optional<Charsmap> map_;
};

using NormalizerPointer = std::unique_ptr<const Normalizer>;

template <typename T, typename... Arguments>
NormalizerPointer make(Arguments&&... arguments) {
  return std::make_unique<const T>(std::forward<Arguments>(arguments)...);
}

Result<NormalizerPointer> parse_sequence(const JsonValue& value, const std::string& where) {
  const JsonValue* list = value.find_set("normalizers");
  if (list == nullptr || !list->is_array())
    return make_error(ErrorKind::kInvalidData, "Sequence has no list of normalizers", where + ".normalizers",
                      "an array");
  std::vector<NormalizerPointer> parts;
  for (size_t i = 0; i < list->as_array().size(); ++i) {
    MLXCEL_ASSIGN_OR_RETURN(
        auto part, parse_normalizer(&list->as_array()[i], where + ".normalizers[" + std::to_string(i) + "]"));
    if (part != nullptr) parts.push_back(std::move(part));
  }
  if (parts.empty()) return NormalizerPointer();
  return make<SequenceNormalizer>(std::move(parts));
}

Result<NormalizerPointer> parse_bert(const JsonReader& reader) {
  BertOptions options;
  MLXCEL_ASSIGN_OR_RETURN(options.clean_text, reader.boolean("clean_text", true));
  MLXCEL_ASSIGN_OR_RETURN(options.handle_chinese_chars, reader.boolean("handle_chinese_chars", true));
  MLXCEL_ASSIGN_OR_RETURN(options.lowercase, reader.boolean("lowercase", true));
  // Not set means "as lowercase says".
  MLXCEL_ASSIGN_OR_RETURN(options.strip_accents, reader.boolean("strip_accents", options.lowercase));
  return make<BertNormalizer>(options);
}

Result<NormalizerPointer> parse_precompiled(const JsonReader& reader, const std::string& where) {
  MLXCEL_ASSIGN_OR_RETURN(const std::string encoded, reader.string("precompiled_charsmap", std::string()));
  if (encoded.empty()) return NormalizerPointer();
  const std::string key = where + ".precompiled_charsmap";
  const auto bytes = decode_base64(encoded);
  if (!bytes) return make_error(ErrorKind::kInvalidData, "character map is malformed", key, "base64");
  MLXCEL_ASSIGN_OR_RETURN(Charsmap map, Charsmap::parse(*bytes, key));
  return make<PrecompiledNormalizer>(std::move(map));
}

}  // namespace

Result<NormalizerPointer> parse_normalizer(const JsonValue* value, const std::string& where) {
  if (value == nullptr || value->is_null()) return NormalizerPointer();
  const JsonReader reader(*value, where);
  MLXCEL_ASSIGN_OR_RETURN(const std::string type, reader.string("type"));
  if (type == "NFC") return make<FormNormalizer>(unicode::Form::kNfc);
  if (type == "NFD") return make<FormNormalizer>(unicode::Form::kNfd);
  if (type == "NFKC") return make<FormNormalizer>(unicode::Form::kNfkc);
  if (type == "NFKD") return make<FormNormalizer>(unicode::Form::kNfkd);
  if (type == "Lowercase") return make<LowercaseNormalizer>();
  if (type == "StripAccents") return make<StripAccentsNormalizer>();
  if (type == "ByteLevel") return make<ByteLevelNormalizer>();
  if (type == "Nmt") return make<NmtNormalizer>();
  if (type == "BertNormalizer") return parse_bert(reader);
  if (type == "Precompiled") return parse_precompiled(reader, where);
  if (type == "Sequence") return parse_sequence(*value, where);
  if (type == "Strip") {
    MLXCEL_ASSIGN_OR_RETURN(const bool left, reader.boolean("strip_left", true));
    MLXCEL_ASSIGN_OR_RETURN(const bool right, reader.boolean("strip_right", true));
    return make<StripNormalizer>(left, right);
  }
  if (type == "Prepend") {
    MLXCEL_ASSIGN_OR_RETURN(std::string prefix, reader.string("prepend"));
    return make<PrependNormalizer>(std::move(prefix));
  }
  if (type == "Replace") {
    MLXCEL_ASSIGN_OR_RETURN(Pattern pattern, Pattern::parse(value->find("pattern"), where + ".pattern"));
    MLXCEL_ASSIGN_OR_RETURN(std::string content, reader.string("content"));
    return make<ReplaceNormalizer>(std::move(pattern), std::move(content));
  }
  return make_error(ErrorKind::kUnsupported, "normalizer type is unknown", where + ".type",
                    "a normalizer of the tokenizers library", type);
}

NormalizerPointer make_nfc_normalizer() { return make<FormNormalizer>(unicode::Form::kNfc); }

NormalizerPointer make_bert_normalizer(bool lower) {
  BertOptions options;
  options.lowercase = lower;
  options.strip_accents = lower;
  return make<BertNormalizer>(options);
}

Result<NormalizerPointer> make_sentencepiece_normalizer(const SentencePieceOptions& options,
                                                        const std::string& where) {
  std::optional<Charsmap> map;
  if (!options.charsmap.empty()) {
    MLXCEL_ASSIGN_OR_RETURN(Charsmap parsed, Charsmap::parse(options.charsmap, where));
    map = std::move(parsed);
  }
  return make<SentencePieceNormalizer>(options.add_space_prefix, options.remove_extra_spaces, std::move(map));
}

}  // namespace mlxcel
