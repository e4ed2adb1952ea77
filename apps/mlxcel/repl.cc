#include "repl.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/file.h"
#include "base/suggest.h"
#include "chat.h"
#include "interrupt.h"
#include "line_editor.h"

namespace mlxcel {
namespace {

constexpr std::string_view kFence = "\"\"\"";
constexpr std::string_view kHelp =
    R"(  /set NAME VALUE   change a setting: temp, top-k, top-p, min-p, seed, max-tokens, stop, system, ...
  /show             the settings and where they came from
  /show messages    the conversation as JSON
  /clear            forget the conversation
  /save FILE        write the conversation as JSON
  /load FILE        read one back
  /stats            speed of the last answer, and memory
  /bye              leave (Ctrl-D does too)
  """               begins and ends text of several lines
  Ctrl-C            stops the answer and keeps the conversation
)";
// What /set may change: the rest is fixed when the model is loaded.
constexpr OptionGroup kSettable[] = {OptionGroup::kSampling, OptionGroup::kOutput};

class Repl {
 public:
  Repl(Context& context, const ResolvedModel& model, ModelSession& session, JsonObject variables)
      : context_(context),
        terminal_(context.terminal),
        model_(model),
        session_(session),
        sequence_(session),
        editor_(path_join(store_paths(context.settings).home, "history")),
        variables_(std::move(variables)) {}

  int run() {
    terminal_.note(fmt::format("{} ({}). /help lists commands, Ctrl-D leaves.",
                               terminal_.styled(model_.name, Style::kBold), session_.quantisation));
    bool interrupted_before = false;
    while (!is_done_) {
      std::optional<std::string> input = read_input();
      if (!input) {
        if (!at_end_ && interrupted_before) break;  // twice Ctrl-C at the prompt leaves as well
        if (at_end_) break;
        interrupted_before = true;
        terminal_.note("\n(Ctrl-C again, Ctrl-D or /bye leaves)");
        continue;
      }
      interrupted_before = false;
      if (input->find_first_not_of(" \t\n") == std::string::npos) continue;
      editor_.remember(*input);
      if (input->starts_with('/')) {
        command(*input);
      } else {
        answer(*input);
      }
    }
    return terminal_.output_failed() ? exit_code_of(ErrorKind::kIo) : 0;
  }

 private:
  // One turn of the user; nullopt: Ctrl-C, or the end (at_end_).
  std::optional<std::string> read_input() {
    LineEditor::Line line = editor_.read(">>> ");
    if (line.outcome != LineEditor::Outcome::kLine) return no_input(line);
    if (!line.text.starts_with(kFence)) return std::move(line.text);
    std::string text = line.text.substr(kFence.size());
    while (!text.ends_with(kFence)) {
      line = editor_.read("... ");
      if (line.outcome != LineEditor::Outcome::kLine) return no_input(line);
      text += (text.empty() ? "" : "\n") + line.text;
    }
    text.resize(text.size() - kFence.size());
    return text;
  }
  std::optional<std::string> no_input(const LineEditor::Line& line) {
    at_end_ = line.outcome == LineEditor::Outcome::kEnd;
    if (at_end_) terminal_.note("");
    return std::nullopt;
  }

  void answer(const std::string& question) {
    JsonArray messages = messages_;
    if (const auto system = context_.settings.text("system"); system && !starts_with_system(messages)) {
      messages.insert(messages.begin(), chat_message("system", *system));
    }
    messages.push_back(chat_message("user", question));
    auto prompt = encode_chat(session_.text, messages, variables_);
    auto options = generate_options(context_.settings, session_.text);
    if (!prompt.ok()) return print_error(terminal_, prompt.error());
    if (!options.ok()) return print_error(terminal_, options.error());
    InterruptScope::clear();
    auto result = sequence_.answer(std::move(*prompt), *options, [&](std::string_view piece) {
      terminal_.print_answer(piece);
      return !InterruptScope::was_interrupted() && !terminal_.output_failed();
    });
    if (!result.ok()) return report_failure(result.error());
    terminal_.print("\n");
    messages_.push_back(chat_message("user", question));
    messages_.push_back(chat_message("assistant", result->text));
    if (result->finish == FinishReason::kContext)
      terminal_.note("(the context is full; /clear starts afresh)");
    if (context_.is_verbose()) terminal_.note(terminal_.styled(describe_speed(*result), Style::kDim));
    last_ = std::move(*result);
  }

  void report_failure(Error error) {
    if (error.hint.empty() && error.one_line().find("context") != std::string::npos)
      error.hint = "/clear starts afresh; -c makes more room";
    sequence_.forget();
    print_error(terminal_, error);
  }

  static bool starts_with_system(const JsonArray& messages) {
    const JsonValue* role = messages.empty() ? nullptr : messages.front().find("role");
    return role != nullptr && role->is_string() && role->as_string() == "system";
  }

  void command(const std::string& line) {
    const size_t blank = std::min(line.find(' '), line.size());
    const std::string name = line.substr(0, blank);
    std::string rest = line.substr(std::min(blank + 1, line.size()));
    while (!rest.empty() && rest.back() == ' ') rest.pop_back();
    if (name == "/help" || name == "/?") return terminal_.note(kHelp.substr(0, kHelp.size() - 1));
    if (!rest.empty() && (name == "/clear" || name == "/stats" || name == "/bye")) {
      return terminal_.note(fmt::format("{} takes nothing after it", name));
    }
    if (name == "/bye" || name == "/exit" || name == "/quit") return leave();
    if (name == "/clear") return clear();
    if (name == "/set") return set(rest);
    if (name == "/show") return show(rest);
    if (name == "/save") return save(rest);
    if (name == "/load") return load(rest);
    if (name == "/stats") return stats();
    const std::vector<std::string> known = {"/help", "/set",  "/show",  "/clear",
                                            "/save", "/load", "/stats", "/bye"};
    const auto nearest = closest_word(name, known);
    terminal_.note(fmt::format("unknown command {}; {}", name,
                               nearest ? fmt::format("did you mean {}?", *nearest) : "see /help"));
  }

  void leave() { is_done_ = true; }

  void clear() {
    messages_.clear();
    sequence_.forget();
    terminal_.note("the conversation is forgotten");
  }

  void set(const std::string& rest) {
    const size_t blank = rest.find(' ');
    const std::string name = rest.substr(0, blank);
    const OptionRow* row = find_option(name);
    const bool is_settable =
        row != nullptr && belongs_to(*row, Command::kRun) && !row->environment_only &&
        (std::find(std::begin(kSettable), std::end(kSettable), row->group) != std::end(kSettable) ||
         name == "system" || name == "verbose");
    if (!is_settable) return refuse_setting(name);
    if (blank == std::string::npos)
      return terminal_.note(fmt::format("/set {} needs a value: {}", name, row->help));
    auto value = parse_setting(*row, rest.substr(blank + 1), "/set " + name);
    if (!value.ok()) return print_error(terminal_, value.error());
    context_.settings.set(*row, Setting{std::move(*value), Origin::kFlag, "/set"});
  }

  void refuse_setting(const std::string& name) {
    std::vector<std::string> known = {"system", "verbose"};
    for (const OptionRow& row : option_table()) {
      if (std::find(std::begin(kSettable), std::end(kSettable), row.group) != std::end(kSettable) &&
          belongs_to(row, Command::kRun)) {
        known.emplace_back(row.name);
      }
    }
    const auto nearest = closest_word(name, known);
    terminal_.note(nearest ? fmt::format("no setting '{}'; did you mean {}?", name, *nearest)
                           : fmt::format("/set knows: {}", fmt::join(known, ", ")));
  }

  void show(const std::string& what) {
    if (what == "messages") return terminal_.note(to_json(JsonValue(messages_), {.indent = 2}));
    if (!what.empty()) return terminal_.note("/show, or /show messages");
    terminal_.note(fmt::format("model {} ({}), context {} tokens, {} messages", model_.name,
                               session_.quantisation, session_.engine->context_length(), messages_.size()));
    const std::string settings = describe_settings(context_.settings, false);
    terminal_.note(settings.substr(0, settings.size() - 1));
  }

  void save(const std::string& path) {
    if (path.empty()) return terminal_.note("/save FILE");
    const Status status = write_file_atomically(path, to_json(JsonValue(messages_), {.indent = 2}) + "\n");
    if (!status.ok()) return print_error(terminal_, status.error());
    terminal_.note(fmt::format("{} messages written to {}", messages_.size(), path));
  }

  void load(const std::string& path) {
    if (path.empty() || path == "-") return terminal_.note("/load FILE");
    auto value = read_json(path);
    if (!value.ok()) return print_error(terminal_, value.error());
    const bool is_conversation =
        value->is_array() &&
        std::all_of(value->as_array().begin(), value->as_array().end(), [](const JsonValue& m) {
          return m.find("role") != nullptr && m.find("content") != nullptr;
        });
    if (!is_conversation)
      return terminal_.note(fmt::format("{} holds no array of messages with role and content", path));
    messages_ = std::move(value->as_array());
    terminal_.note(fmt::format("{} messages read from {}", messages_.size(), path));
  }

  void stats() {
    if (!last_) return terminal_.note("no answer yet");
    terminal_.note(describe_speed(*last_));
    terminal_.note(
        fmt::format("kv cache {:.1f} MiB", static_cast<double>(session_.engine->kv_bytes()) / 1048576.0));
  }

  Context& context_;
  Terminal& terminal_;
  const ResolvedModel& model_;
  ModelSession& session_;
  ChatSequence sequence_;
  LineEditor editor_;
  JsonObject variables_;
  JsonArray messages_;
  std::optional<GenerateResult> last_;
  bool is_done_ = false, at_end_ = false;
};

}  // namespace

Result<int> run_repl(Context& context, const ResolvedModel& model) {
  MLXCEL_ASSIGN_OR_RETURN(JsonObject variables, template_variables(context.settings));
  MLXCEL_ASSIGN_OR_RETURN(SessionOptions options, session_options(context.settings, model, 1));
  MLXCEL_ASSIGN_OR_RETURN(options.chat_template, chat_template_override(context.settings));
  MLXCEL_ASSIGN_OR_RETURN(ModelSession session, load_session(context, model, options, true));
  // A model that cannot chat (no template) says so now rather than after the first question.
  MLXCEL_RETURN_IF_ERROR(encode_chat(session.text, {chat_message("user", "Hello")}, variables));
  const InterruptScope interruptible;
  return Repl(context, model, session, std::move(variables)).run();
}

}  // namespace mlxcel
