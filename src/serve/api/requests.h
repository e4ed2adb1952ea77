// Bodies of chat and text completion requests, read and turned into prompts. Called on a worker thread:
// rendering and encoding a long conversation takes milliseconds that the I/O thread does not have. Values;
// any thread.
#pragma once

#include <string>
#include <vector>

#include "runtime/serving.h"
#include "serve/api/answer.h"
#include "serve/api/generation_fields.h"

namespace mlxcel {

struct ParsedRequest {
  std::vector<GenerationRequest> requests;  // one per prompt; one for chat
  AnswerOptions answer;
  int num_unknown_fields = 0;
};

// `messages` as the template wants them: developer becomes system, parts are checked, tool-call arguments
// stay as they are (the template engine parses them). An unsupported part (image, audio) is 501 naming its
// kind.
ApiResult<JsonValue> read_messages(const JsonValue& body);

ApiResult<ParsedRequest> parse_chat_request(const JsonValue& body, const TextModel& text,
                                            const RequestDefaults& defaults);
ApiResult<ParsedRequest> parse_completion_request(const JsonValue& body, const TextModel& text,
                                                  const RequestDefaults& defaults);

// The prompt of a chat body: for /apply-template and for token counting.
ApiResult<RenderedPrompt> render_chat(const JsonValue& body, const TextModel& text);

}  // namespace mlxcel
