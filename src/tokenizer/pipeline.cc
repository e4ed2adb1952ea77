#include "tokenizer/pipeline.h"

#include <algorithm>
#include <limits>

#include "base/utf8.h"

namespace mlxcel {

// Where the content of a message lies in the joined text.
class PipelineTokenizer::ContentRanges {
 public:
  void add(size_t begin, size_t end) {
    if (begin < end) ranges_.push_back({begin, end});
  }
  bool is_template(size_t begin, size_t end) const {
    const auto after = std::partition_point(ranges_.begin(), ranges_.end(),
                                            [&](const PieceRange& range) { return range.end <= begin; });
    return after == ranges_.end() || after->begin >= end;
  }

 private:
  std::vector<PieceRange> ranges_;
};

// One encode() call.
struct PipelineTokenizer::Job {
  EncodeScratch& scratch;
  std::vector<TokenId> ids;
  bool parse_special = true;
  const ContentRanges* content = nullptr;  // set for spans
};

PipelineTokenizer::PipelineTokenizer(PipelineParts parts) : parts_(std::move(parts)) {
  const Vocabulary& vocabulary = parts_.model->vocabulary();
  int64_t size = vocabulary.size();
  for (const AddedToken& token : parts_.added_tokens) size = std::max(size, int64_t{token.id} + 1);
  tokens_.resize(static_cast<size_t>(size));
  for (int64_t id = 0; id < vocabulary.size(); ++id)
    tokens_[static_cast<size_t>(id)].text = vocabulary.token(static_cast<TokenId>(id));

  std::vector<AddedToken> raw, normalized;
  std::vector<std::string> raw_patterns, normalized_patterns;
  added_texts_.reserve(parts_.added_tokens.size());
  RegexScratch scratch;
  for (const AddedToken& token : parts_.added_tokens) {
    added_texts_.push_back(token.surface.value_or(token.content));
    tokens_[static_cast<size_t>(token.id)] = {&added_texts_.back(),
                                              static_cast<int32_t>(added_texts_.size()) - 1, token.special};
    added_ids_.set(token.content, token.id);
    if (!token.normalized) {
      raw.push_back(token);
      raw_patterns.push_back(token.content);
      continue;
    }
    NormalizedText pattern = NormalizedText::from(token.content, false);
    if (parts_.normalizer) parts_.normalizer->apply(pattern, scratch);
    // Plain tokens decode to their normalised form, as the library does; markers stay what they are.
    if (!token.special) added_texts_.back() = pattern.text;
    normalized.push_back(token);
    normalized_patterns.push_back(std::move(pattern.text));
  }
  std::vector<bool> is_special(tokens_.size());
  for (size_t id = 0; id < tokens_.size(); ++id) is_special[id] = tokens_[id].is_special;
  parts_.model->set_special(std::move(is_special));
  raw_matcher_.build(std::move(raw), raw_patterns);
  normalized_matcher_.build(std::move(normalized), normalized_patterns);
}

std::vector<TokenId> PipelineTokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  EncodeScratch scratch;
  return encode_with(text, options, scratch);
}

std::vector<TokenId> PipelineTokenizer::encode_with(std::string_view text, const EncodeOptions& options,
                                                    EncodeScratch& scratch) const {
  Job job{scratch, {}, options.parse_special, nullptr};
  job.ids.reserve(text.size() / 3 + 8);
  if (options.add_special) job.ids = parts_.surround.before;
  if (is_valid_utf8(text))
    encode_text(text, job);
  else
    encode_text(repair_utf8(text), job);
  if (options.add_special)
    job.ids.insert(job.ids.end(), parts_.surround.after.begin(), parts_.surround.after.end());
  return std::move(job.ids);
}

std::vector<TokenId> PipelineTokenizer::encode_spans(std::span<const TextSpan> spans) const {
  std::string joined;
  for (const TextSpan& span : spans) joined += span.text;
  // A character that is cut in two by a border is whole in the joined text; only what stays ill-formed is
  // repaired.
  const bool is_valid = is_valid_utf8(joined);
  if (!is_valid) joined.clear();
  ContentRanges content;
  size_t offset = 0;
  for (const TextSpan& span : spans) {
    const size_t begin = offset;
    if (is_valid) {
      offset += span.text.size();
    } else {
      joined += repair_utf8(span.text);
      offset = joined.size();
    }
    if (span.is_content) content.add(begin, offset);
  }
  EncodeScratch scratch;
  // A template's markers are found before the model sees the text; what is left must not become one.
  scratch.model.forbids_special = true;
  Job job{scratch, {}, true, &content};
  job.ids.reserve(joined.size() / 3 + 8);
  encode_text(joined, job);
  return std::move(job.ids);
}

void PipelineTokenizer::encode_text(std::string_view text, Job& job) const {
  std::vector<AddedMatch> matches;
  if (!raw_matcher_.empty())
    matches =
        job.content == nullptr
            ? raw_matcher_.find_all(text, job.parse_special)
            : raw_matcher_.find_all(text, [&](size_t b, size_t e) { return job.content->is_template(b, e); });
  size_t done = 0;
  for (const AddedMatch& match : matches) {
    if (done < match.begin) encode_section(text.substr(done, match.begin - done), done, job);
    job.ids.push_back(match.id);
    done = match.end;
  }
  if (done < text.size()) encode_section(text.substr(done), done, job);
}

// Text between two tokens that were found in the raw text; `offset` is where it begins there.
void PipelineTokenizer::encode_section(std::string_view text, size_t offset, Job& job) const {
  const bool has_normalizer = parts_.normalizer != nullptr;
  const bool needs_origins = has_normalizer && (parts_.pre_tokenizer.needs_text_start ||
                                                (job.content && !normalized_matcher_.empty()));
  NormalizedText normalized = NormalizedText::from(text, needs_origins);
  if (has_normalizer) parts_.normalizer->apply(normalized, job.scratch.regex);
  const auto origin = [&](size_t at) {
    if (at >= normalized.text.size()) return offset + text.size();
    return offset + (needs_origins ? normalized.origins[at] : at);
  };
  std::vector<AddedMatch> matches;
  if (!normalized_matcher_.empty()) {
    const auto is_template = [&](size_t begin, size_t end) {
      return job.content->is_template(origin(begin), std::max(origin(end), origin(begin) + 1));
    };
    matches = job.content == nullptr ? normalized_matcher_.find_all(normalized.text, job.parse_special)
                                     : normalized_matcher_.find_all(normalized.text, is_template);
  }
  if (matches.empty()) {
    const bool is_text_start = parts_.pre_tokenizer.needs_text_start && origin(0) == 0;
    encode_pieces({std::move(normalized.text), {}, is_text_start}, job);
    return;
  }
  size_t done = 0;
  const auto encode_gap = [&](size_t end) {
    if (done < end) encode_pieces({normalized.text.substr(done, end - done), {}, origin(done) == 0}, job);
  };
  for (const AddedMatch& match : matches) {
    encode_gap(match.begin);
    job.ids.push_back(match.id);
    done = match.end;
  }
  encode_gap(normalized.text.size());
}

void PipelineTokenizer::encode_pieces(Pieces pieces, Job& job) const {
  if (pieces.text.empty()) return;
  pieces.ranges.push_back({0, pieces.text.size()});
  if (parts_.pre_tokenizer.splitter) parts_.pre_tokenizer.splitter->apply(pieces, job.scratch.regex);
  const std::string_view text = pieces.text;
  for (const PieceRange& range : pieces.ranges)
    parts_.model->encode(text.substr(range.begin, range.end - range.begin), job.ids, job.scratch.model);
}

const std::string* PipelineTokenizer::text_of(TokenId id, bool skip_special) const {
  if (id < 0 || static_cast<size_t>(id) >= tokens_.size()) return nullptr;
  const Token& token = tokens_[static_cast<size_t>(id)];
  return skip_special && token.is_special ? nullptr : token.text;
}

std::string PipelineTokenizer::decode(std::span<const TokenId> ids, bool skip_special) const {
  DecoderRun run(parts_.decoder, parts_.batch_mode);
  for (const TokenId id : ids)
    if (const std::string* text = text_of(id, skip_special)) run.push(*text);
  run.finish();
  return std::move(run.text());
}

std::optional<TokenId> PipelineTokenizer::token_to_id(std::string_view token) const {
  if (const auto id = added_ids_.find(token)) return id;
  return parts_.model->vocabulary().find(token);
}

std::string PipelineTokenizer::id_to_token(TokenId id) const {
  if (id < 0 || id >= vocab_size()) return {};
  const Token& token = tokens_[static_cast<size_t>(id)];
  if (token.added >= 0) return parts_.added_tokens[static_cast<size_t>(token.added)].content;
  return token.text == nullptr ? std::string() : *token.text;
}

bool PipelineTokenizer::is_special(TokenId id) const {
  return id >= 0 && static_cast<size_t>(id) < tokens_.size() && tokens_[static_cast<size_t>(id)].is_special;
}

std::string PipelineTokenizer::description() const {
  return std::string(parts_.model->kind()) + ", " + std::to_string(vocab_size()) + " tokens";
}

class PipelineTokenizer::StreamState : public DecodeState {
 public:
  StreamState(const PipelineTokenizer& tokenizer, bool skip_special)
      : tokenizer_(tokenizer), run_(tokenizer.parts_.decoder, DecoderMode{}), skip_special_(skip_special) {}
  void push(TokenId id, std::string& out) override {
    if (const std::string* text = tokenizer_.text_of(id, skip_special_)) run_.push(*text);
    take(out);
  }
  void flush(std::string& out) override {
    run_.finish();
    take(out);
  }

 private:
  void take(std::string& out) {
    out += run_.text();
    run_.text().clear();
  }
  const PipelineTokenizer& tokenizer_;
  DecoderRun run_;
  bool skip_special_;
};

std::unique_ptr<Tokenizer::DecodeState> PipelineTokenizer::new_decode_state(bool skip_special) const {
  return std::make_unique<StreamState>(*this, skip_special);
}

StreamDecoder::StreamDecoder(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special)
    : tokenizer_(std::move(tokenizer)), state_(tokenizer_->new_decode_state(skip_special)) {}

std::string StreamDecoder::push(TokenId id) {
  std::string out;
  state_->push(id, out);
  return out;
}

std::string StreamDecoder::flush() {
  std::string out;
  state_->flush(out);
  return out;
}

}  // namespace mlxcel
