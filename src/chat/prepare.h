// Messages as a template gets them: what transformers does to them first, and what API clients need on top.
// Pure functions; any thread.
#pragma once

#include <string>

#include "base/error.h"
#include "chat/chat_template.h"

namespace mlxcel {

// How a template reads message content.
struct ContentStyle {
  bool reads_text = true;
  bool reads_parts = true;
};

// A copy of request.messages, prepared as the request's flags say.
Result<JsonValue> prepare_messages(const RenderRequest& request, const ContentStyle& style);

// The tag that transformers appends to the final message to find where it ends in the rendered text.
inline constexpr std::string_view kContinueTag = "CONTINUE_FINAL_MESSAGE_TAG ";
// Appends the tag to the last message's text; returns that text without it.
Result<std::string> mark_final_message(JsonValue& messages, std::string_view template_source);

}  // namespace mlxcel
