#include "tokenizer/decoder.h"

#include <optional>

#include "base/utf8.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/pattern.h"

namespace mlxcel {
namespace {

constexpr std::string_view kSpaceSymbol = "\xE2\x96\x81";
constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// A step that does one thing to each part and keeps nothing back.
class Sink : public DecoderSink {
 public:
  explicit Sink(DecoderSink& next) : next_(next) {}
  void finish() override { next_.finish(); }

 protected:
  DecoderSink& next_;
};

template <typename T>
class SimpleStep : public DecoderStep {
 public:
  std::unique_ptr<DecoderSink> start(DecoderSink& next, const DecoderMode&) const override {
    return std::make_unique<T>(next);
  }
};

// Without a decoder the library joins the tokens by spaces.
class JoinSink : public Sink {
 public:
  using Sink::Sink;
  void part(std::string_view text, bool begins_token) override {
    if (begins_token && has_token_) next_.part(" ", true);
    has_token_ = true;
    next_.part(text, begins_token);
  }

 private:
  bool has_token_ = false;
};

class FuseSink : public Sink {
 public:
  using Sink::Sink;
  void part(std::string_view text, bool) override {
    next_.part(text, is_first_);
    is_first_ = false;
  }

 private:
  bool is_first_ = true;
};

// Bytes to text: whole characters pass, an incomplete one waits, each maximal ill-formed subpart is one
// U+FFFD.
class ByteLevelSink : public Sink {
 public:
  using Sink::Sink;
  void part(std::string_view text, bool) override {
    if (const auto bytes = from_byte_alphabet(text))
      pending_ += *bytes;
    else
      pending_ += text;
    const size_t ready = pending_.size() - incomplete_utf8_tail(pending_);
    emit(ready);
  }
  void finish() override {
    emit(pending_.size());
    next_.finish();
  }

 private:
  void emit(size_t size) {
    if (size == 0) return;
    next_.part(repair_utf8(std::string_view(pending_).substr(0, size)), is_first_);
    is_first_ = false;
    pending_.erase(0, size);
  }
  std::string pending_;
  bool is_first_ = true;
};

std::optional<unsigned char> parse_byte_token(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  unsigned value = 0;
  for (const char c : token.substr(3, 2)) {
    unsigned digit = 0;
    if (c >= '0' && c <= '9')
      digit = static_cast<unsigned>(c - '0');
    else if (c >= 'A' && c <= 'F')
      digit = static_cast<unsigned>(c - 'A') + 10;
    else if (c >= 'a' && c <= 'f')
      digit = static_cast<unsigned>(c - 'a') + 10;
    else
      return std::nullopt;
    value = value * 16 + digit;
  }
  return static_cast<unsigned char>(value);
}

// "<0xE4>" and so on to characters; a run of byte tokens is one token afterwards.
class ByteFallbackSink : public Sink {
 public:
  ByteFallbackSink(DecoderSink& next, bool waits_for_runs) : Sink(next), waits_for_runs_(waits_for_runs) {}
  void part(std::string_view text, bool begins_token) override {
    const auto byte = begins_token ? parse_byte_token(text) : std::nullopt;
    if (!byte) {
      end_run();
      next_.part(text, begins_token);
      return;
    }
    pending_.push_back(static_cast<char>(*byte));
    is_in_run_ = true;
    if (!waits_for_runs_) advance();
  }
  void finish() override {
    end_run();
    next_.finish();
  }

 private:
  void emit(std::string_view text) {
    next_.part(text, !has_begun_);
    has_begun_ = true;
  }
  void spoil(size_t count) {
    for (size_t i = 0; i < count; ++i) next_.part(kReplacement, true);
    has_begun_ = true;
  }
  // Emits what the pending bytes have settled. REQUIRES: not waiting for runs.
  void advance() {
    while (!pending_.empty()) {
      if (incomplete_utf8_tail(pending_) == pending_.size()) return;
      const Utf8Char c = decode_utf8(pending_, 0);
      if (!c.valid) is_spoilt_ = true;
      if (c.valid && !is_spoilt_)
        emit(std::string_view(pending_).substr(0, c.size));
      else
        spoil(c.size);
      pending_.erase(0, c.size);
    }
  }
  void end_run() {
    if (!is_in_run_) return;
    if (waits_for_runs_ && is_valid_utf8(pending_))
      emit(pending_);
    else
      spoil(pending_.size());  // what is left of a stream's run is an incomplete character
    pending_.clear();
    is_in_run_ = is_spoilt_ = has_begun_ = false;
  }

  bool waits_for_runs_;
  std::string pending_;
  bool is_in_run_ = false;
  bool is_spoilt_ = false;
  bool has_begun_ = false;
};

class ByteFallbackStep : public DecoderStep {
 public:
  explicit ByteFallbackStep(bool may_wait) : may_wait_(may_wait) {}
  std::unique_ptr<DecoderSink> start(DecoderSink& next, const DecoderMode& mode) const override {
    return std::make_unique<ByteFallbackSink>(next, may_wait_ && mode.waits_for_byte_runs);
  }

 private:
  bool may_wait_;
};

// Replaces in each token. A literal that may go on in the token's next part waits; a regex waits for the
// whole token.
class ReplaceSink : public Sink {
 public:
  ReplaceSink(DecoderSink& next, const Pattern& pattern, const std::string& content)
      : Sink(next), pattern_(pattern), content_(content) {}
  void part(std::string_view text, bool begins_token) override {
    if (begins_token) end_token();
    is_open_ = true;
    begins_ = begins_ || begins_token;
    pending_ += text;
    if (pattern_.literal_text() != nullptr) replace(undecided_tail(*pattern_.literal_text()));
  }
  void finish() override {
    end_token();
    next_.finish();
  }

 private:
  // Bytes at the end that could be the start of one more match. One-character literals never wait: parts hold
  // whole characters.
  size_t undecided_tail(const std::string& literal) const {
    if (literal.empty() || decode_utf8(literal, 0).size == literal.size()) return 0;
    for (size_t size = std::min(literal.size() - 1, pending_.size()); size > 0; --size)
      if (std::string_view(pending_).ends_with(std::string_view(literal).substr(0, size))) return size;
    return 0;
  }
  void replace(size_t tail) {
    std::string out;
    size_t done = 0;
    pattern_.for_each(pending_, scratch_, [&](size_t begin, size_t end) {
      out.append(pending_, done, begin - done).append(content_);
      done = end;
    });
    const size_t end = std::max(done, pending_.size() - tail);
    out.append(pending_, done, end - done);
    pending_.erase(0, end);
    if (out.empty() && !begins_) return;
    next_.part(out, begins_);
    begins_ = false;
  }
  void end_token() {
    if (is_open_ && (!pending_.empty() || begins_)) replace(0);
    is_open_ = false;
  }

  const Pattern& pattern_;
  const std::string& content_;
  RegexScratch scratch_;
  std::string pending_;
  bool is_open_ = false;
  bool begins_ = false;
};

class ReplaceStep : public DecoderStep {
 public:
  ReplaceStep(Pattern pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  std::unique_ptr<DecoderSink> start(DecoderSink& next, const DecoderMode&) const override {
    return std::make_unique<ReplaceSink>(next, pattern_, content_);
  }

 private:
  Pattern pattern_;
  std::string content_;
};

struct StripOptions {
  std::string content = " ";
  int64_t start = 0;
  int64_t stop = 0;
};

// Drops up to `start` characters at the start of each token and up to `stop` at its end; the latter wait.
class StripSink : public Sink {
 public:
  StripSink(DecoderSink& next, const StripOptions& options) : Sink(next), options_(options) {}
  void part(std::string_view text, bool begins_token) override {
    if (begins_token) {
      held_.clear();
      left_ = options_.start;
      next_.part("", true);
    }
    while (left_ > 0 && text.starts_with(options_.content)) {
      text.remove_prefix(options_.content.size());
      --left_;
    }
    if (text.empty()) return;
    left_ = 0;
    held_ += text;
    size_t keep = held_.size();
    for (int64_t i = 0;
         i < options_.stop && std::string_view(held_).substr(0, keep).ends_with(options_.content); ++i)
      keep -= options_.content.size();
    if (keep > 0) next_.part(std::string_view(held_).substr(0, keep), false);
    held_.erase(0, keep);
  }

 private:
  const StripOptions& options_;
  std::string held_;  // at the end of the token this is dropped
  int64_t left_ = 0;
};

class StripStep : public DecoderStep {
 public:
  explicit StripStep(StripOptions options) : options_(std::move(options)) {}
  std::unique_ptr<DecoderSink> start(DecoderSink& next, const DecoderMode&) const override {
    return std::make_unique<StripSink>(next, options_);
  }

 private:
  StripOptions options_;
};

struct MetaspaceOptions {
  std::string replacement;
  bool drops_first = true;  // in the first token, where the encoder put it
};

class MetaspaceSink : public Sink {
 public:
  MetaspaceSink(DecoderSink& next, const MetaspaceOptions& options) : Sink(next), options_(options) {}
  void part(std::string_view text, bool begins_token) override {
    if (begins_token) ++num_tokens_;
    const bool drops = num_tokens_ <= 1 && options_.drops_first;
    std::string out;
    for (size_t at = 0; at < text.size();) {
      if (text.substr(at).starts_with(options_.replacement)) {
        if (!drops) out.push_back(' ');
        at += options_.replacement.size();
      } else {
        out.push_back(text[at++]);
      }
    }
    next_.part(out, begins_token);
  }

 private:
  const MetaspaceOptions& options_;
  size_t num_tokens_ = 0;
};

class MetaspaceStep : public DecoderStep {
 public:
  explicit MetaspaceStep(MetaspaceOptions options) : options_(std::move(options)) {}
  std::unique_ptr<DecoderSink> start(DecoderSink& next, const DecoderMode&) const override {
    return std::make_unique<MetaspaceSink>(next, options_);
  }

 private:
  MetaspaceOptions options_;
};

// Undoes the spaces that BERT's splitting puts around punctuation and contractions; the library's list, in
// its order.
std::string clean_up(std::string text) {
  static constexpr std::pair<std::string_view, std::string_view> kRules[] = {
      {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},   {" n't", "n't"},
      {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [from, to] : kRules) {
    for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
      text.replace(at, from.size(), to);
  }
  return text;
}

struct WordPieceDecoderOptions {
  std::string prefix = "##";
  bool cleanup = true;
};

class WordPieceSink : public Sink {
 public:
  WordPieceSink(DecoderSink& next, const WordPieceDecoderOptions& options) : Sink(next), options_(options) {}
  void part(std::string_view text, bool begins_token) override {
    std::string out;
    if (begins_token && has_token_) {
      if (!options_.prefix.empty() && text.starts_with(options_.prefix))
        text.remove_prefix(options_.prefix.size());
      else
        out = " ";
    }
    has_token_ = true;
    out += text;
    next_.part(options_.cleanup ? clean_up(std::move(out)) : out, begins_token);
  }

 private:
  const WordPieceDecoderOptions& options_;
  bool has_token_ = false;
};

class WordPieceStep : public DecoderStep {
 public:
  explicit WordPieceStep(WordPieceDecoderOptions options) : options_(std::move(options)) {}
  std::unique_ptr<DecoderSink> start(DecoderSink& next, const DecoderMode&) const override {
    return std::make_unique<WordPieceSink>(next, options_);
  }

 private:
  WordPieceDecoderOptions options_;
};

// End-of-word suffixes become spaces, that of the last token nothing: it waits for the next token.
class BpeSuffixSink : public Sink {
 public:
  BpeSuffixSink(DecoderSink& next, const std::string& suffix) : Sink(next), suffix_(suffix) {}
  void part(std::string_view text, bool begins_token) override {
    if (begins_token) flush(" ");
    const size_t at = suffix_.empty() ? std::string_view::npos : text.find(suffix_);
    const size_t ready = held_.empty() ? std::min(at, text.size()) : 0;
    next_.part(text.substr(0, ready), begins_token);
    held_ += text.substr(ready);
  }
  void finish() override {
    flush("");
    next_.finish();
  }

 private:
  void flush(std::string_view replacement) {
    if (held_.empty()) return;
    std::string out;
    size_t done = 0;
    for (size_t at = held_.find(suffix_); at != std::string::npos; at = held_.find(suffix_, done)) {
      out.append(held_, done, at - done).append(replacement);
      done = at + suffix_.size();
    }
    out.append(held_, done);
    held_.clear();
    next_.part(out, false);
  }
  const std::string& suffix_;
  std::string held_;
};

class BpeSuffixStep : public DecoderStep {
 public:
  explicit BpeSuffixStep(std::string suffix) : suffix_(std::move(suffix)) {}
  std::unique_ptr<DecoderSink> start(DecoderSink& next, const DecoderMode&) const override {
    return std::make_unique<BpeSuffixSink>(next, suffix_);
  }

 private:
  std::string suffix_;
};

struct CtcOptions {
  std::string pad_token, word_delimiter;
  bool cleanup = true;
};

// Repeated tokens collapse, the padding token vanishes.
class CtcSink : public Sink {
 public:
  CtcSink(DecoderSink& next, const CtcOptions& options) : Sink(next), options_(options) {}
  void part(std::string_view text, bool) override {
    if (has_token_ && text == previous_) return;
    has_token_ = true;
    previous_ = std::string(text);
    std::string out = replace_all(previous_, options_.pad_token, "");
    if (options_.cleanup) out = replace_all(clean_up(std::move(out)), options_.word_delimiter, " ");
    if (!out.empty()) next_.part(out, true);
  }

 private:
  static std::string replace_all(std::string text, const std::string& from, std::string_view to) {
    if (from.empty()) return text;
    for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
      text.replace(at, from.size(), to);
    return text;
  }
  const CtcOptions& options_;
  std::string previous_;
  bool has_token_ = false;
};

class CtcStep : public DecoderStep {
 public:
  explicit CtcStep(CtcOptions options) : options_(std::move(options)) {}
  std::unique_ptr<DecoderSink> start(DecoderSink& next, const DecoderMode&) const override {
    return std::make_unique<CtcSink>(next, options_);
  }

 private:
  CtcOptions options_;
};

using Step = std::unique_ptr<const DecoderStep>;
using Steps = std::vector<Step>;

Result<Step> parse_strip(const JsonReader& reader) {
  StripOptions options;
  MLXCEL_ASSIGN_OR_RETURN(options.content, reader.string("content"));
  MLXCEL_ASSIGN_OR_RETURN(options.start, reader.integer("start", 0));
  MLXCEL_ASSIGN_OR_RETURN(options.stop, reader.integer("stop", 0));
  if (options.content.empty() || options.start < 0 || options.stop < 0)
    return make_error(ErrorKind::kInvalidData, "Strip is malformed", reader.where(),
                      "a character as content, start and stop of at least 0");
  return Step(std::make_unique<const StripStep>(std::move(options)));
}

Result<Step> parse_metaspace(const JsonReader& reader) {
  MetaspaceOptions options;
  MLXCEL_ASSIGN_OR_RETURN(options.replacement, reader.string("replacement", std::string(kSpaceSymbol)));
  if (options.replacement.empty()) return reader.type_error("replacement", "one character");
  MLXCEL_ASSIGN_OR_RETURN(const bool add_prefix_space, reader.boolean("add_prefix_space", true));
  MLXCEL_ASSIGN_OR_RETURN(
      const std::string scheme,
      reader.string("prepend_scheme", std::string(add_prefix_space ? "always" : "never")));
  if (scheme != "always" && scheme != "first" && scheme != "never")
    return make_error(ErrorKind::kUnsupported, "prepend scheme is unknown",
                      reader.where() + ".prepend_scheme", "always, first or never", scheme);
  options.drops_first = scheme != "never";
  return Step(std::make_unique<const MetaspaceStep>(std::move(options)));
}

Status parse_steps(const JsonValue& value, const std::string& where, Steps& steps);

Status parse_sequence(const JsonValue& value, const std::string& where, Steps& steps) {
  const JsonValue* list = value.find_set("decoders");
  if (list == nullptr || !list->is_array())
    return make_error(ErrorKind::kInvalidData, "Sequence has no list of decoders", where + ".decoders",
                      "an array");
  for (size_t i = 0; i < list->as_array().size(); ++i)
    MLXCEL_RETURN_IF_ERROR(
        parse_steps(list->as_array()[i], where + ".decoders[" + std::to_string(i) + "]", steps));
  return ok_status();
}

Status parse_steps(const JsonValue& value, const std::string& where, Steps& steps) {
  const JsonReader reader(value, where);
  MLXCEL_ASSIGN_OR_RETURN(const std::string type, reader.string("type"));
  if (type == "Sequence") return parse_sequence(value, where, steps);
  if (type == "ByteLevel") {
    steps.push_back(std::make_unique<const SimpleStep<ByteLevelSink>>());
  } else if (type == "ByteFallback") {
    steps.push_back(std::make_unique<const ByteFallbackStep>(true));
  } else if (type == "Fuse") {
    steps.push_back(std::make_unique<const SimpleStep<FuseSink>>());
  } else if (type == "Metaspace") {
    MLXCEL_ASSIGN_OR_RETURN(auto step, parse_metaspace(reader));
    steps.push_back(std::move(step));
  } else if (type == "Strip") {
    MLXCEL_ASSIGN_OR_RETURN(auto step, parse_strip(reader));
    steps.push_back(std::move(step));
  } else if (type == "Replace") {
    MLXCEL_ASSIGN_OR_RETURN(Pattern pattern, Pattern::parse(value.find("pattern"), where + ".pattern"));
    MLXCEL_ASSIGN_OR_RETURN(std::string content, reader.string("content"));
    steps.push_back(std::make_unique<const ReplaceStep>(std::move(pattern), std::move(content)));
  } else if (type == "WordPiece") {
    WordPieceDecoderOptions options;
    MLXCEL_ASSIGN_OR_RETURN(options.prefix, reader.string("prefix", std::string("##")));
    MLXCEL_ASSIGN_OR_RETURN(options.cleanup, reader.boolean("cleanup", true));
    steps.push_back(std::make_unique<const WordPieceStep>(std::move(options)));
  } else if (type == "BPEDecoder") {
    MLXCEL_ASSIGN_OR_RETURN(std::string suffix, reader.string("suffix", std::string("</w>")));
    steps.push_back(std::make_unique<const BpeSuffixStep>(std::move(suffix)));
  } else if (type == "CTC") {
    CtcOptions options;
    MLXCEL_ASSIGN_OR_RETURN(options.pad_token, reader.string("pad_token", std::string("<pad>")));
    MLXCEL_ASSIGN_OR_RETURN(options.word_delimiter, reader.string("word_delimiter_token", std::string("|")));
    MLXCEL_ASSIGN_OR_RETURN(options.cleanup, reader.boolean("cleanup", true));
    steps.push_back(std::make_unique<const CtcStep>(std::move(options)));
  } else {
    return make_error(ErrorKind::kUnsupported, "decoder type is unknown", where + ".type",
                      "a decoder of the tokenizers library", type);
  }
  return ok_status();
}

}  // namespace

Result<DecoderChain> DecoderChain::parse(const JsonValue* value, const std::string& where) {
  DecoderChain chain;
  if (value == nullptr || value->is_null())
    chain.steps_.push_back(std::make_unique<const SimpleStep<JoinSink>>());
  else
    MLXCEL_RETURN_IF_ERROR(parse_steps(*value, where, chain.steps_));
  return chain;
}

DecoderChain DecoderChain::byte_level() {
  DecoderChain chain;
  chain.steps_.push_back(std::make_unique<const SimpleStep<ByteLevelSink>>());
  return chain;
}

DecoderChain DecoderChain::sentencepiece(bool strips_space) {
  DecoderChain chain;
  chain.steps_.push_back(
      std::make_unique<const ReplaceStep>(Pattern::literal(std::string(kSpaceSymbol)), " "));
  chain.steps_.push_back(std::make_unique<const ByteFallbackStep>(false));
  chain.steps_.push_back(std::make_unique<const SimpleStep<FuseSink>>());
  if (strips_space) chain.steps_.push_back(std::make_unique<const StripStep>(StripOptions{" ", 1, 0}));
  return chain;
}

DecoderChain DecoderChain::wordpiece_marked_starts() {
  DecoderChain chain;
  chain.steps_.push_back(
      std::make_unique<const ReplaceStep>(Pattern::literal(std::string(kSpaceSymbol)), " "));
  chain.steps_.push_back(std::make_unique<const SimpleStep<FuseSink>>());
  chain.steps_.push_back(std::make_unique<const StripStep>(StripOptions{" ", 1, 0}));
  return chain;
}

DecoderRun::DecoderRun(const DecoderChain& chain, const DecoderMode& mode)
    : text_(std::make_unique<TextSink>()) {
  DecoderSink* next = text_.get();
  for (auto step = chain.steps().rbegin(); step != chain.steps().rend(); ++step) {
    sinks_.push_back((*step)->start(*next, mode));
    next = sinks_.back().get();
  }
}

void DecoderRun::push(std::string_view token) {
  DecoderSink& first = sinks_.empty() ? *text_ : *sinks_.back();
  first.part(token, true);
}

void DecoderRun::finish() {
  DecoderSink& first = sinks_.empty() ? *text_ : *sinks_.back();
  first.finish();
}

}  // namespace mlxcel
