#include "options/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "base/suggest.h"
#include "options/config_file.h"

namespace mlxcel {
namespace {

Error usage_error(std::string what, std::string where = {}, std::string expected = {}, std::string found = {},
                  std::string hint = {}) {
  return make_error(ErrorKind::kInvalidArgument, std::move(what), std::move(where), std::move(expected),
                    std::move(found), std::move(hint));
}

struct SplitCommand {
  std::optional<Command> command;
  size_t words = 0;  // of the command's name
};

// The command at the front of the line.
Result<SplitCommand> split_command(std::span<const std::string> arguments) {
  std::vector<std::string> names;
  for (const CommandRow& row : command_table()) {
    std::vector<std::string_view> spellings = split_words(row.aliases);
    names.emplace_back(row.name);
    names.insert(names.end(), spellings.begin(), spellings.end());
    const std::vector<std::string_view> words = split_words(row.name);
    bool matches = arguments.size() >= words.size();
    for (size_t i = 0; matches && i < words.size(); ++i) matches = arguments[i] == words[i];
    if (matches) return SplitCommand{row.command, words.size()};
    if (std::find(spellings.begin(), spellings.end(), arguments[0]) != spellings.end())
      return SplitCommand{row.command, 1};
  }
  if (arguments[0] == "bench") {
    return usage_error("bench needs to know what to measure", "", "mlxcel bench decode or mlxcel bench serve",
                       arguments.size() > 1 ? fmt::format("'{}'", arguments[1]) : "nothing",
                       "see: mlxcel bench decode --help");
  }
  const std::optional<std::string> nearest = closest_word(arguments[0], names);
  return usage_error("unknown command", fmt::format("'{}'", arguments[0]),
                     fmt::format("one of {}", fmt::join(names, ", ")), "",
                     nearest ? fmt::format("did you mean 'mlxcel {}'?", *nearest) : "see: mlxcel --help");
}

bool is_long_with_one_dash(std::string_view name) {
  return name.size() > 2 && name[0] == '-' && name[1] != '-';
}

// llama-server's "-ctk" and its like: one dash, several letters. CLI11 would read a bundle of short flags, so
// they are rewritten to the long name first.
std::vector<std::string> expand_single_dash_names(std::span<const std::string> arguments, Command command) {
  std::vector<std::string> out;
  for (const std::string& argument : arguments) {
    std::string rewritten = argument;
    for (const OptionRow& row : option_table()) {
      if (!belongs_to(row, command) || row.environment_only) continue;
      for (const std::string_view alias : split_words(row.aliases)) {
        if (is_long_with_one_dash(alias) && argument == alias) rewritten = fmt::format("--{}", row.name);
      }
    }
    out.push_back(std::move(rewritten));
  }
  return out;
}

std::string cli11_names(const OptionRow& row) {
  std::string names = fmt::format("--{}", row.name);
  for (const std::string_view alias : split_words(row.aliases)) {
    if (!is_long_with_one_dash(alias)) names += fmt::format(",{}", alias);
  }
  if (row.type == OptionType::kBoolean) names += fmt::format(",!--no-{}", row.name);
  return names;
}

std::vector<std::string> flag_spellings(Command command) {
  std::vector<std::string> spellings;
  for (const OptionRow& row : option_table()) {
    if (!belongs_to(row, command) || row.environment_only) continue;
    spellings.push_back(fmt::format("--{}", row.name));
    if (row.type == OptionType::kBoolean) spellings.push_back(fmt::format("--no-{}", row.name));
    for (const std::string_view alias : split_words(row.aliases)) spellings.emplace_back(alias);
  }
  return spellings;
}

Error unknown_flag(const std::string& word, Command command) {
  const std::string flag = word.substr(0, word.find('='));
  const CommandRow& row = command_row(command);
  const std::optional<std::string> nearest = closest_word(flag, flag_spellings(command));
  std::string hint = fmt::format("see: mlxcel {} --help=all", row.name);
  if (nearest) {
    hint = fmt::format("did you mean '{}'?", *nearest);
  } else {
    for (const CommandRow& other : command_table()) {
      const std::vector<std::string> spellings = flag_spellings(other.command);
      if (std::find(spellings.begin(), spellings.end(), flag) != spellings.end()) {
        hint = fmt::format("it belongs to 'mlxcel {}'", other.name);
        break;
      }
    }
  }
  return usage_error(fmt::format("unknown flag of 'mlxcel {}'", row.name), fmt::format("'{}'", flag), "", "",
                     std::move(hint));
}

Status read_environment(Command command, const EnvironmentLookup& environment, Settings& settings) {
  for (const OptionRow& row : option_table()) {
    if (!belongs_to(row, command)) continue;
    for (const std::string_view name : split_words(row.environment)) {
      const std::optional<std::string> text = environment(name);
      if (!text || text->empty()) continue;  // an empty variable is an unset one
      MLXCEL_ASSIGN_OR_RETURN(SettingValue value, parse_setting(row, *text, name));
      settings.set(row, Setting{std::move(value), Origin::kEnvironment, std::string(name)});
      break;
    }
  }
  return ok_status();
}

Status read_flag(const OptionRow& row, const std::vector<std::string>& results, Settings& settings) {
  const std::string source = fmt::format("--{}", row.name);
  if (row.repeatable) {
    settings.set(row, Setting{SettingValue(results), Origin::kFlag, source});
    return ok_status();
  }
  if (results.size() > 1) {
    return usage_error("a flag is given more than once", source, "one value",
                       fmt::format("{} values", results.size()));
  }
  MLXCEL_ASSIGN_OR_RETURN(SettingValue value, parse_setting(row, results.front(), source));
  settings.set(row, Setting{std::move(value), Origin::kFlag, source});
  return ok_status();
}

bool is_off(const Setting& setting) {
  const bool* value = std::get_if<bool>(&setting.value);
  return value != nullptr && !*value;
}

// Two options that exclude each other conflict when they come from the same kind of source; else the stronger
// source decides and the other option counts as not set.
Status check_conflicts(Settings& settings) {
  for (const OptionRow& row : option_table()) {
    for (const std::string_view other : split_words(row.conflicts)) {
      const Setting* a = settings.find(row.name);
      const Setting* b = settings.find(other);
      if (a == nullptr || b == nullptr || is_off(*a) || is_off(*b)) continue;
      if (a->origin == b->origin) {
        return usage_error("two settings exclude each other", fmt::format("{} and {}", a->source, b->source),
                           "one of them", "both");
      }
      settings.erase(a->origin < b->origin ? row.name : other);
    }
  }
  return ok_status();
}

void set_defaults(Command command, Settings& settings) {
  for (const OptionRow& row : option_table()) {
    if (!belongs_to(row, command) || default_of(row, command).empty()) continue;
    auto value = parse_setting(row, default_of(row, command), row.name);
    MLXCEL_CHECK_MSG(value.ok(), row.name);
    settings.set(row, Setting{std::move(value).value(), Origin::kBuiltIn, "built-in"});
  }
}

// CLI11 only splits: every option takes text, nothing is converted, checked or read from the environment by
// it.
struct Splitter {
  CLI::App app;
  std::vector<std::pair<const OptionRow*, CLI::Option*>> options;

  explicit Splitter(Command command) {
    app.set_help_flag();
    app.allow_extras(true);
    app.allow_windows_style_options(false);
    for (const OptionRow& row : option_table()) {
      if (!belongs_to(row, command) || row.environment_only) continue;
      CLI::Option* option = row.type == OptionType::kBoolean ? app.add_flag(cli11_names(row))
                                                             : app.add_option(cli11_names(row));
      option->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
      if (row.type != OptionType::kBoolean) option->expected(1);
      option->allow_extra_args(false);
      options.emplace_back(&row, option);
    }
  }
};

Status split_flags(std::span<const std::string> words, Command command, CommandLine& line) {
  Splitter splitter(command);
  std::vector<std::string> reversed(words.rbegin(), words.rend());  // CLI11 takes them from the back
  try {
    splitter.app.parse(reversed);
  } catch (const CLI::ArgumentMismatch& error) {
    const std::string_view text = error.what();  // "--prompt: 1 required ..."
    return usage_error("a value is missing", fmt::format("{}", text.substr(0, text.find(':'))),
                       "a value after it", "nothing");
  } catch (const CLI::ParseError& error) {
    return usage_error("the command line cannot be read", "", "", "", error.what());
  }
  for (const std::string& word : splitter.app.remaining()) {
    if (word.size() > 1 && word[0] == '-') return unknown_flag(word, command);
    line.arguments.push_back(word);
  }
  for (const auto& [row, option] : splitter.options) {
    const std::vector<std::string>& results = option->results();
    if (option->count() == 0) continue;
    if (row->name == "help") {
      line.wants_help = true;
      if (results.back() != "true") line.help_topic = results.back();
      return ok_status();
    }
  }
  for (const auto& [row, option] : splitter.options) {
    if (option->count() == 0) continue;
    MLXCEL_RETURN_IF_ERROR(read_flag(*row, option->results(), line.settings));
  }
  return ok_status();
}

Result<CommandLine> program_help(std::span<const std::string> arguments) {
  CommandLine line;
  line.wants_help = true;
  if (arguments.empty()) return line;
  std::string_view first = arguments[0];
  if (first.starts_with("--help=")) line.help_topic = first.substr(7);
  return line;
}

}  // namespace

std::vector<std::string> unknown_variables(std::span<const std::string> names) {
  std::vector<std::string> known, lines;
  for (const OptionRow& row : option_table()) {
    for (const std::string_view name : split_words(row.environment)) known.emplace_back(name);
  }
  for (const std::string& name : names) {
    if (!name.starts_with("MLXCEL_") || name.starts_with("MLXCEL_TEST_")) continue;
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    const auto nearest = closest_word(name, known);
    lines.push_back(fmt::format("warning: the environment variable {} is no setting{}", name,
                                nearest ? fmt::format("; did you mean {}?", *nearest) : ""));
  }
  return lines;
}

Result<CommandLine> parse_command_line(std::span<const std::string> arguments,
                                       const EnvironmentLookup& environment) {
  if (arguments.empty() || arguments[0] == "-h" || arguments[0].starts_with("--help=") ||
      arguments[0] == "--help") {
    return program_help(arguments);
  }
  std::vector<std::string> words(arguments.begin(), arguments.end());
  if (words[0] == "--version") words[0] = "version";
  if (words[0] == "help") {  // mlxcel help COMMAND
    words.erase(words.begin());
    if (words.empty()) return program_help({});
    words.push_back("--help");
  }
  if (words[0].starts_with("-")) {
    return usage_error("a command comes first", fmt::format("'{}'", words[0]), "mlxcel COMMAND [FLAGS]", "",
                       "see: mlxcel --help");
  }
  MLXCEL_ASSIGN_OR_RETURN(const SplitCommand split, split_command(words));
  CommandLine line;
  line.command = split.command;
  const CommandRow& row = command_row(*split.command);

  // Words after "--" are arguments whatever they look like.
  const auto separator = std::find(words.begin(), words.end(), "--");
  const std::vector<std::string> flags = expand_single_dash_names(
      std::span(words).subspan(split.words, static_cast<size_t>(separator - words.begin()) - split.words),
      *split.command);
  MLXCEL_RETURN_IF_ERROR(split_flags(flags, *split.command, line));
  if (line.wants_help) return line;
  if (separator != words.end()) line.arguments.insert(line.arguments.end(), separator + 1, words.end());
  MLXCEL_RETURN_IF_ERROR(read_environment(*split.command, environment, line.settings));
  if (const auto path = line.settings.text("config"))
    MLXCEL_RETURN_IF_ERROR(read_config_file(*path, *split.command, line.settings));
  MLXCEL_RETURN_IF_ERROR(check_conflicts(line.settings));
  set_defaults(*split.command, line.settings);
  if (line.arguments.size() > row.max_arguments) {
    return usage_error(fmt::format("too many arguments of 'mlxcel {}'", row.name), "",
                       fmt::format("at most {}", row.max_arguments),
                       fmt::format("'{}'", line.arguments[row.max_arguments]),
                       fmt::format("see: mlxcel {} --help", row.name));
  }
  return line;
}

}  // namespace mlxcel
