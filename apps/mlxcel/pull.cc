// mlxcel pull: download a model into the store.
#include "hub/pull.h"

#include <fmt/format.h>

#include <memory>

#include "commands.h"
#include "interrupt.h"
#include "options/values.h"
#include "progress.h"

namespace mlxcel {
namespace {

Result<std::string> access_token(const Settings& settings) {
  std::string token = settings.text("hf-token").value_or("");
  if (const auto path = settings.text("token-file")) {
    MLXCEL_ASSIGN_OR_RETURN(token, read_text(*path));
  }
  while (!token.empty() && (token.back() == '\n' || token.back() == '\r' || token.back() == ' '))
    token.pop_back();
  for (const char c : token) {
    if (static_cast<unsigned char>(c) <= 0x20 || static_cast<unsigned char>(c) >= 0x7F) {
      return make_error(ErrorKind::kInvalidArgument, "the access token is malformed",
                        "HF_TOKEN or --token-file", "one word of plain letters");
    }
  }
  return token;
}

}  // namespace

Result<int> pull_command(Context& context) {
  if (context.arguments.empty()) {
    return make_error(ErrorKind::kInvalidArgument, "no model is named", "", "mlxcel pull OWNER/NAME[:QUANT]",
                      "nothing");
  }
  const Settings& settings = context.settings;
  const StorePaths paths = store_paths(settings);
  MLXCEL_ASSIGN_OR_RETURN(const ModelName name, parse_model_name(context.arguments[0], paths.default_owner));
  PullOptions options;
  options.endpoint = *settings.text("endpoint");
  options.revision = *settings.text("revision");
  options.retries = static_cast<int>(*settings.integer("retries"));
  options.stall_timeout_seconds = *settings.number("stall-timeout");
  MLXCEL_ASSIGN_OR_RETURN(options.token, access_token(settings));
  options.is_cancelled = [] { return InterruptScope::was_interrupted(); };
  std::unique_ptr<ProgressLine> line;
  std::string current;
  options.on_progress = [&](const PullProgress& progress) {
    if (line == nullptr || current != progress.file) {
      line = std::make_unique<ProgressLine>(context.terminal, progress.file);
      current = progress.file;
    }
    line->update(progress.done_bytes, progress.total_bytes, progress.resumed_bytes);
    if (progress.is_finished) line->finish();
  };
  const InterruptScope interruptible;
  auto result = pull_model(name, paths, options);
  line.reset();
  if (!result.ok()) {
    if (result.error().kind == ErrorKind::kCancelled)
      result.error().hint = "what was downloaded is kept; pull again to go on";
    return result.error();
  }
  context.terminal.note(fmt::format("{}{} is in {} ({} files, {} downloaded)", name.repository(),
                                    name.variant.empty() ? "" : ":" + name.variant, result->folder,
                                    result->files.size(), format_bytes(result->downloaded_bytes)));
  context.terminal.note(fmt::format("try: mlxcel run {}", context.arguments[0]));
  return 0;
}

}  // namespace mlxcel
