// Chat prompts: messages to text through the checkpoint's own Jinja template, as transformers 5 configures
// it, with limits on steps, depth and output. Strings remember where they came from: text of a message stays
// marked as content through every filter and concatenation, so marker text that a user typed never becomes a
// control token.
//
// Owner: shared_ptr<const ChatTemplate>. Threads: render() is const and free for all threads.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "tokenizer/tokenizer.h"

namespace mlxcel {

struct TemplateLimits {
  int64_t max_steps = 2'000'000;  // evaluated nodes
  int max_depth = 200;            // nesting of expressions, blocks, macro calls
  size_t max_output_bytes = size_t{8} << 20;
  size_t max_value_bytes = size_t{16} << 20;  // one string, or one list's items (of all levels) times 16
  size_t max_live_bytes = size_t{128} << 20;  // of all values alive at once
  size_t max_source_bytes = size_t{1} << 20;
};

// A rendered prompt: consecutive pieces, each wholly template text or wholly content.
struct RenderedPrompt {
  struct Piece {
    std::string text;
    bool is_content = false;
  };
  std::vector<Piece> pieces;
  struct Span {
    size_t begin = 0, end = 0;  // byte offsets in text()
  };
  std::vector<Span> assistant_spans;  // of {% generation %} blocks
  std::string text() const;
  std::vector<TextSpan> spans() const;  // borrows from this object
};

struct RenderRequest {
  JsonValue messages;   // array of {role, content, ...}
  JsonValue tools;      // array or null
  JsonValue documents;  // array or null
  bool add_generation_prompt = true;
  bool continue_final_message = false;
  JsonObject extra;  // chat_template_kwargs: enable_thinking, reasoning_effort, ...
  // bos_token, eos_token, ...: strings by name.
  std::map<std::string, std::string> special_tokens;
  std::string now;  // fixed "YYYY-MM-DD HH:MM:SS" for strftime_now; empty: the current time
  // API clients send "content": null beside tool calls, or leave it out there; true turns both into "" (what
  // servers should do), false keeps transformers 5's behaviour (keys with null are dropped).
  bool null_content_is_empty = true;
  // What transformers 5 does to every message first: keys with null are dropped, and reasoning_content,
  // thinking and reasoning are copied to each other. False passes messages as they are.
  bool normalize_messages = true;
  // API clients send the arguments of tool calls as JSON text; true turns an object's text into the object
  // ("" into
  // {}; anything else stays text). transformers leaves them as they are.
  bool parse_tool_arguments = true;
  // Content that is a list of parts is kept when the template reads parts. When it reads only text, the texts
  // of the parts are joined with a newline, and a part of another type is an error. A template that reads
  // only parts gets text as one part. Decided by rendering a probe of each kind when the template is
  // compiled. transformers leaves the content as it is.
  bool adapt_content_parts = true;
};

class ChatTemplate {
 public:
  virtual ~ChatTemplate() = default;
  // kInvalidArgument: the template raised (its message is Error::what), a type error, or a final message that
  // cannot be continued; kResourceExhausted: a limit. Error::where is the template's line.
  virtual Result<RenderedPrompt> render(const RenderRequest& request) const = 0;
  virtual const std::string& source() const = 0;
};

// Syntax errors are kInvalidData with the line number.
Result<std::shared_ptr<const ChatTemplate>> compile_chat_template(std::string source,
                                                                  const TemplateLimits& limits = {});

// The template of a Hugging Face folder. Priority: chat_template.jinja, chat_template.json,
// tokenizer_config.json "chat_template" (a string, or a list of named ones: "default", or "tool_use" when
// `with_tools`). nullopt: none.
Result<std::optional<std::string>> find_chat_template(const std::string& folder, bool with_tools = false);
// "bos_token" etc. of tokenizer_config.json / special_tokens_map.json as strings.
std::map<std::string, std::string> special_tokens_of(const JsonValue& tokenizer_config);

}  // namespace mlxcel
