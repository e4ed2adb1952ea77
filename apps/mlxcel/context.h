// What every command gets: its settings, its words, the terminal; and the steps that several commands share.
//
// Owner: main(). Threads: the main thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "hub/model_store.h"
#include "options/settings.h"
#include "runtime/model_session.h"
#include "terminal.h"

namespace mlxcel {

struct Context {
  Settings settings;
  std::vector<std::string> arguments;
  Terminal terminal;

  bool is_verbose() const { return settings.flag("verbose"); }
};

// ~/.cache/mlxcel and the Hugging Face cache, as the environment moves them.
StorePaths store_paths(const Settings& settings);
// The model that -m names; an error that says how to get one when there is no -m.
Result<ResolvedModel> find_model(const Context& context, const std::optional<std::string>& reference);
// Source of --chat-template or --chat-template-file.
Result<std::optional<std::string>> chat_template_override(const Settings& settings);
// "--chat-template-kwargs" as an object.
Result<JsonObject> template_variables(const Settings& settings);

// For open_session(): everything that --threads, --isa, --backend, -c, the KV flags and so on say.
// num_sequences: how many run at once (decides --decode-storage-backend auto).
Result<SessionOptions> session_options(const Settings& settings, const ResolvedModel& model,
                                       int64_t num_sequences);
// Opens it with a progress bar and, when verbose, the banner.
Result<ModelSession> load_session(Context& context, const ResolvedModel& model, SessionOptions options,
                                  bool with_text);

// Lets generation_config.json speak where neither flag nor environment did. Its sampling counts only where it
// says do_sample; otherwise the answer is greedy.
void apply_model_defaults(Settings& settings, const TextModel::Defaults& defaults);
// serve: a model whose file says do_sample = false answers greedily where nothing stronger asks otherwise.
void apply_greedy_default(Settings& settings, const TextModel::Defaults& defaults);
Result<SamplingParams> sampling_params(const Settings& settings);
StopRules stop_rules(const Settings& settings, const TextModel& text);
Result<GenerateOptions> generate_options(const Settings& settings, const TextModel& text);

// "-" is standard input.
Result<std::string> read_text(const std::string& path);
Result<JsonValue> read_json(const std::string& path);

// How fast an answer was, for people: one line.
std::string describe_speed(const GenerateResult& result);
JsonObject timings_json(const GenerateResult& result);

}  // namespace mlxcel
