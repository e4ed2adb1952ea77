// mlxcel score: log-probabilities of a text's tokens, perplexity over windows, logits of every position.
#include <fmt/format.h>

#include <cstring>

#include <cerrno>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>

#include "base/file.h"
#include "chat.h"
#include "commands.h"
#include "interrupt.h"
#include "options/values.h"

namespace mlxcel {
namespace {

// Logits of one step held at once; larger steps are cut.
constexpr int64_t kMaxStepLogitBytes = int64_t{64} << 20;
constexpr size_t kMaxListedTokens = 200;  // more are only summed up in the text output

// `logits` [vocab_size] of the token at `position` of the window.
using LogitsSink = std::function<Status(int64_t position, std::span<const float> logits)>;

// Runs the window's tokens through the engine and hands out the logits of each position, in order.
Status run_window(ModelSession& session, std::span<const TokenId> window, int32_t chunk,
                  const LogitsSink& sink) {
  Engine& engine = *session.engine;
  const int64_t vocabulary = engine.runner().spec().vocab_size;
  SequenceRequest request;
  request.prompt.assign(window.begin(), window.end());
  request.stop.max_tokens = 0;  // the prompt only
  request.wants_prompt_logits = true;
  MLXCEL_ASSIGN_OR_RETURN(const SequenceId id, engine.add(std::move(request)));
  const auto largest =
      static_cast<int32_t>(std::max<int64_t>(1, kMaxStepLogitBytes / (vocabulary * int64_t{sizeof(float)})));
  const auto length = static_cast<int64_t>(window.size());
  Status status = ok_status();
  while (status.ok() && engine.num_computed(id) < length) {
    if (InterruptScope::was_interrupted()) {
      status = make_error(ErrorKind::kCancelled, "cancelled");
      break;
    }
    const int64_t pending = length - engine.num_computed(id);
    StepResult step =
        engine.step({{SegmentPlan{id, static_cast<int32_t>(std::min<int64_t>({pending, chunk, largest}))}}});
    SequenceEvent& event = step.events.front();
    if (event.error) {
      status = std::move(*event.error);
      break;
    }
    for (int64_t i = 0; status.ok() && i < event.num_computed; ++i) {
      const size_t begin = static_cast<size_t>(i * vocabulary);
      MLXCEL_CHECK(begin + static_cast<size_t>(vocabulary) <= event.logits.size());
      status = sink(event.first_logits_position + i,
                    std::span(event.logits).subspan(begin, static_cast<size_t>(vocabulary)));
    }
  }
  engine.remove(id);
  return status;
}

// A safetensors file with f32 "logits" [n, vocab_size] and i32 "input_ids" [n], written as the rows come.
// Format: github.com/huggingface/safetensors, README "Format".
class LogitsFile {
 public:
  ~LogitsFile() {
    if (file_ == nullptr) return;
    std::fclose(file_);
    std::remove(partial_.c_str());
  }
  LogitsFile() = default;
  LogitsFile(const LogitsFile&) = delete;
  LogitsFile& operator=(const LogitsFile&) = delete;

  Status open(const std::string& path, std::span<const TokenId> ids, int64_t vocabulary) {
    MLXCEL_ASSIGN_OR_RETURN(path_, writable_target(path));
    partial_ = path_ + ".partial";
    file_ = std::fopen(partial_.c_str(), "wb");
    if (file_ == nullptr) return failed();
    const size_t logits_bytes = ids.size() * static_cast<size_t>(vocabulary) * sizeof(float);
    const size_t ids_bytes = ids.size() * sizeof(int32_t);
    std::string header = fmt::format(
        R"({{"logits":{{"dtype":"F32","shape":[{0},{1}],"data_offsets":[0,{2}]}},"input_ids":{{"dtype":"I32","shape":[{0}],"data_offsets":[{2},{3}]}}}})",
        ids.size(), vocabulary, logits_bytes, logits_bytes + ids_bytes);
    header.append((8 - header.size() % 8) % 8, ' ');
    const uint64_t size = header.size();
    ids_.assign(ids.begin(), ids.end());
    if (std::fwrite(&size, 1, sizeof size, file_) != sizeof size) return failed();
    return std::fwrite(header.data(), 1, header.size(), file_) == header.size() ? ok_status() : failed();
  }
  Status append(std::span<const float> row) {
    return std::fwrite(row.data(), sizeof(float), row.size(), file_) == row.size() ? ok_status() : failed();
  }
  Status close() {
    const bool written = std::fwrite(ids_.data(), sizeof(int32_t), ids_.size(), file_) == ids_.size();
    const bool closed = std::fclose(file_) == 0;
    file_ = nullptr;
    return written && closed && std::rename(partial_.c_str(), path_.c_str()) == 0 ? ok_status() : failed();
  }

 private:
  Status failed() const {
    const int code = errno;
    return make_error(ErrorKind::kIo, "cannot write the logits", path_, "", std::strerror(code),
                      "choose another file with --logits-out");
  }
  std::string path_, partial_;
  std::vector<int32_t> ids_;
  std::FILE* file_ = nullptr;
};

struct Score {
  std::vector<std::optional<float>> logprobs;  // per token; the first of all has none
  double sum = 0.0;
  int64_t count = 0, windows = 0;

  double perplexity() const { return count > 0 ? std::exp(-sum / static_cast<double>(count)) : 0.0; }
  void add(size_t token, float logprob) {
    logprobs[token] = logprob;
    sum += static_cast<double>(logprob);
    ++count;
  }
};

struct Windows {
  size_t length = 0, stride = 0;
};

Result<Windows> choose_windows(const Settings& settings, int64_t context, size_t tokens) {
  Windows windows;
  const auto room = static_cast<size_t>(context);
  windows.length =
      static_cast<size_t>(settings.integer("window").value_or(static_cast<int64_t>(std::min(tokens, room))));
  if (windows.length > room) {
    return make_error(ErrorKind::kInvalidArgument, "the window is longer than the context", "--window",
                      fmt::format("at most {}", room), fmt::format("{}", windows.length), "raise -c");
  }
  windows.stride = static_cast<size_t>(
      settings.integer("stride").value_or(static_cast<int64_t>(std::max<size_t>(1, windows.length / 2))));
  if (windows.stride >= windows.length && tokens > windows.length) {
    return make_error(ErrorKind::kInvalidArgument, "the stride leaves tokens out", "--stride",
                      fmt::format("less than the window ({})", windows.length),
                      fmt::format("{}", windows.stride));
  }
  return windows;
}

// Each token is scored once, by the first window that holds it and the token before it.
Result<Score> score_tokens(ModelSession& session, std::span<const TokenId> tokens, const Windows& windows,
                           int32_t chunk, LogitsFile* file) {
  Score score;
  score.logprobs.resize(tokens.size());
  size_t next = 1;  // first token without a score
  for (size_t begin = 0;; begin += windows.stride) {
    const size_t length = std::min(windows.length, tokens.size() - begin);
    const auto sink = [&](int64_t position, std::span<const float> logits) -> Status {
      if (file != nullptr) MLXCEL_RETURN_IF_ERROR(file->append(logits));
      const size_t scored = begin + static_cast<size_t>(position) + 1;
      if (scored >= next && scored < begin + length)
        score.add(scored, compute_logprobs(logits, tokens[scored], 0).chosen);
      return ok_status();
    };
    MLXCEL_RETURN_IF_ERROR(run_window(session, tokens.subspan(begin, length), chunk, sink));
    ++score.windows;
    next = begin + length;
    if (next >= tokens.size()) return score;
  }
}

std::string score_json(const Score& score, std::span<const TokenId> tokens) {
  JsonArray ids, logprobs;
  for (size_t i = 0; i < tokens.size(); ++i) {
    ids.emplace_back(int64_t{tokens[i]});
    logprobs.push_back(score.logprobs[i] ? JsonValue(static_cast<double>(*score.logprobs[i])) : JsonValue());
  }
  JsonObject out;
  out.set("tokens", std::move(ids));
  out.set("logprobs", std::move(logprobs));
  out.set("num_scored", score.count);
  out.set("windows", score.windows);
  out.set("total_logprob", score.sum);
  out.set("mean_logprob", score.count > 0 ? score.sum / static_cast<double>(score.count) : 0.0);
  out.set("perplexity", score.perplexity());
  return to_json(JsonValue(std::move(out))) + "\n";
}

std::string score_text(const Score& score, std::span<const TokenId> tokens, const Tokenizer* tokenizer) {
  std::string out;
  for (size_t i = 0; tokens.size() <= kMaxListedTokens && i < tokens.size(); ++i) {
    const std::string text =
        tokenizer != nullptr ? to_json(JsonValue(tokenizer->decode({&tokens[i], 1}))) : "";
    out += fmt::format("{:>8}  {:>10}  {}\n", tokens[i],
                       score.logprobs[i] ? fmt::format("{:.4f}", *score.logprobs[i]) : "-", text);
  }
  out +=
      fmt::format("{} tokens scored in {} {}: total log-probability {:.4f}, perplexity {:.4f}\n", score.count,
                  score.windows, score.windows == 1 ? "window" : "windows", score.sum, score.perplexity());
  return out;
}

Result<std::vector<TokenId>> tokens_of_list(const std::string& list, int64_t vocabulary) {
  std::vector<TokenId> ids;
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    const auto id = parse_integer(std::string_view(list).substr(begin, end - begin));
    if (!id || *id < 0 || *id >= vocabulary) {
      return make_error(ErrorKind::kInvalidArgument, "wrong value", "--tokens",
                        fmt::format("ids from 0 to {}, as 1,2,3", vocabulary - 1),
                        fmt::format("'{}'", list.substr(begin, end - begin)));
    }
    ids.push_back(static_cast<TokenId>(*id));
    begin = end + 1;
  }
  return ids;
}

Result<std::string> text_to_score(const Context& context) {
  const auto file = context.settings.text("file");
  if (file && !context.arguments.empty()) {
    return make_error(ErrorKind::kInvalidArgument, "two texts are given", "", "--file or a word", "both");
  }
  if (file) return read_text(*file);
  if (!context.arguments.empty()) return context.arguments[0];
  if (!context.terminal.stdin_is_terminal()) return read_text("-");
  return make_error(ErrorKind::kInvalidArgument, "there is no text", "",
                    "TEXT, --file FILE, --tokens IDS, or text on standard input", "none");
}

}  // namespace

Result<int> score_command(Context& context) {
  const Settings& settings = context.settings;
  MLXCEL_ASSIGN_OR_RETURN(const ResolvedModel model, find_model(context, settings.text("model")));
  const auto list = settings.text("tokens");
  if (list && !context.arguments.empty()) {
    return make_error(ErrorKind::kInvalidArgument, "two texts are given", "", "--tokens IDS or TEXT", "both");
  }
  std::string text;
  if (!list) {
    MLXCEL_ASSIGN_OR_RETURN(text, text_to_score(context));
  }
  MLXCEL_ASSIGN_OR_RETURN(const SessionOptions options, session_options(settings, model, 1));
  MLXCEL_ASSIGN_OR_RETURN(ModelSession session, load_session(context, model, options, !list));
  const int64_t vocabulary = session.engine->runner().spec().vocab_size;
  std::vector<TokenId> tokens;
  if (list) {
    MLXCEL_ASSIGN_OR_RETURN(tokens, tokens_of_list(*list, vocabulary));
  } else {
    MLXCEL_ASSIGN_OR_RETURN(tokens, encode_raw(*session.text.tokenizer, text));
  }
  MLXCEL_ASSIGN_OR_RETURN(const Windows windows,
                          choose_windows(settings, session.engine->context_length(), tokens.size()));
  LogitsFile file;
  const auto logits_path = settings.text("logits-out");
  if (logits_path) {
    if (tokens.size() > windows.length) {
      return make_error(ErrorKind::kInvalidArgument, "the text needs more than one window", "--logits-out",
                        fmt::format("at most {} tokens", windows.length), fmt::format("{}", tokens.size()),
                        "raise -c, or score a shorter text");
    }
    MLXCEL_RETURN_IF_ERROR(file.open(*logits_path, tokens, vocabulary));
  }
  const InterruptScope interruptible;
  const auto chunk = static_cast<int32_t>(*settings.integer("prefill-chunk"));
  MLXCEL_ASSIGN_OR_RETURN(const Score score,
                          score_tokens(session, tokens, windows, chunk, logits_path ? &file : nullptr));
  if (logits_path) MLXCEL_RETURN_IF_ERROR(file.close());
  context.terminal.print(settings.flag("json") ? score_json(score, tokens)
                                               : score_text(score, tokens, session.text.tokenizer.get()));
  return 0;
}

}  // namespace mlxcel
