// libFuzzer: a template and a message from the input. Anything may fail; nothing may crash, hang or leak, and
// the pieces of a prompt must make up its text.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"
#include "chat/chat_template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace mlxcel;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  // What follows a NUL is the message.
  const size_t cut = std::min(input.find('\0'), size);
  TemplateLimits limits;
  limits.max_steps = 50'000;
  limits.max_depth = 60;
  limits.max_output_bytes = limits.max_value_bytes = size_t{1} << 20;
  limits.max_live_bytes = size_t{8} << 20;
  const auto chat = compile_chat_template(std::string(input.substr(0, cut)), limits);
  if (!chat.ok()) return 0;
  JsonObject message;
  message.set("role", "user");
  message.set("content", std::string(cut < size ? input.substr(cut + 1) : std::string_view("hi")));
  JsonArray messages;
  messages.emplace_back(std::move(message));
  RenderRequest request;
  request.messages = JsonValue(std::move(messages));
  request.special_tokens = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};
  request.now = "2026-01-05 09:03:07";
  const auto prompt = (*chat)->render(request);
  if (!prompt.ok()) return 0;
  MLXCEL_CHECK(prompt->text().size() <= limits.max_output_bytes);
  bool was_content = false;
  for (size_t i = 0; i < prompt->pieces.size(); ++i) {
    MLXCEL_CHECK(!prompt->pieces[i].text.empty());
    MLXCEL_CHECK(i == 0 || prompt->pieces[i].is_content != was_content);
    was_content = prompt->pieces[i].is_content;
  }
  return 0;
}
