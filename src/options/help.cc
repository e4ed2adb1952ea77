#include "options/help.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

namespace mlxcel {
namespace {

constexpr size_t kTextColumn = 36, kLineWidth = 110;

std::string lower_case(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

std::string spelling(const OptionRow& row) {
  if (row.environment_only) return std::string(row.environment);
  std::string short_names, long_names = fmt::format("--{}", row.name);
  for (const std::string_view alias : split_words(row.aliases)) {
    if (alias.starts_with("--")) {
      long_names += fmt::format(", {}", alias);
    } else {
      short_names += fmt::format("{}, ", alias);
    }
  }
  std::string text = short_names + long_names;
  if (row.type == OptionType::kBoolean && row.default_text == "true") text = fmt::format("--no-{}", row.name);
  if (!row.value_name.empty()) text += fmt::format(" {}", row.value_name);
  return text;
}

std::string details(const OptionRow& row) {
  std::string text(row.help);
  std::vector<std::string> notes;
  if (row.type == OptionType::kChoice) {
    notes.push_back(fmt::format("one of {}", fmt::join(split_words(row.choices), ", ")));
  }
  if (!row.default_text.empty() && row.type != OptionType::kBoolean)
    notes.push_back(fmt::format("default {}", row.default_text));
  if (!row.serve_default.empty()) notes.push_back(fmt::format("serve: {}", row.serve_default));
  if (row.type == OptionType::kBoolean && row.default_text == "true") notes.push_back("default on");
  if (!row.environment.empty() && !row.environment_only) {
    notes.push_back(fmt::format("env {}", fmt::join(split_words(row.environment), ", ")));
  }
  if (!notes.empty()) text += fmt::format(" [{}]", fmt::join(notes, "; "));
  return text;
}

std::string option_line(const OptionRow& row) {
  std::string out = "  " + spelling(row);
  if (out.size() + 2 > kTextColumn) {
    out += '\n';
    out.append(kTextColumn, ' ');
  } else {
    out.append(kTextColumn - out.size(), ' ');
  }
  size_t column = kTextColumn;
  const std::string text = details(row);  // the words are views into it
  for (const std::string_view word : split_words(text)) {
    if (column > kTextColumn && column + 1 + word.size() > kLineWidth) {
      out += '\n';
      out.append(kTextColumn, ' ');
      column = kTextColumn;
    }
    if (column > kTextColumn) {
      out += ' ';
      ++column;
    }
    out += word;
    column += word.size();
  }
  return out + "\n";
}

std::string grouped(Command command, const std::function<bool(const OptionRow&)>& wanted) {
  std::string out;
  for (const OptionGroup group : option_groups()) {
    std::string lines;
    for (const OptionRow& row : option_table()) {
      if (row.group == group && belongs_to(row, command) && wanted(row)) lines += option_line(row);
    }
    if (!lines.empty()) out += fmt::format("\n{}:\n{}", option_group_name(group), lines);
  }
  return out;
}

bool mentions(const OptionRow& row, const std::string& word) {
  const std::string all =
      fmt::format("{} {} {} {} {}", row.name, row.aliases, row.environment, row.help, row.choices);
  return lower_case(all).find(word) != std::string::npos;
}

std::string header(const CommandRow& row) {
  std::string out = fmt::format("{}.\n\nExamples:\n", row.summary);
  for (const std::string_view example : row.examples) out += fmt::format("  {}\n", example);
  out += fmt::format("\nUsage: mlxcel {} [FLAGS]{}{}\n", row.name, row.arguments.empty() ? "" : " ",
                     row.arguments);
  if (!row.aliases.empty()) out += fmt::format("Also: mlxcel {}\n", row.aliases);
  return out;
}

Error no_such_topic(std::string_view topic) {
  std::vector<std::string_view> names;
  for (const OptionGroup group : option_groups()) names.push_back(option_group_name(group));
  return make_error(ErrorKind::kInvalidArgument, "no help about this word", fmt::format("'{}'", topic),
                    fmt::format("all, a group ({}), or a word of an option", fmt::join(names, ", ")));
}

}  // namespace

std::string program_help_text() {
  std::string out = "Runs language models on this machine, with the same bits every time.\n\nExamples:\n";
  for (const std::string_view example : command_row(Command::kRun).examples)
    out += fmt::format("  {}\n", example);
  out += "\nUsage: mlxcel COMMAND [FLAGS]\n\nCommands:\n";
  for (const CommandRow& row : command_table()) out += fmt::format("  {:<14}{}\n", row.name, row.summary);
  out +=
      "\nA MODEL is a folder, a .gguf file, owner/name (downloaded before, or in the Hugging Face cache) or "
      "a bare name.\n";
  out += "mlxcel COMMAND --help explains a command; mlxcel --help=WORD searches all flags.\n";
  out +=
      "Exit codes: 0 done, 1 failure, 2 usage, 3 model missing or invalid, 4 not enough memory, 130 after "
      "Ctrl-C.\n";
  return out;
}

Result<std::string> command_help_text(Command command, std::string_view topic) {
  const CommandRow& row = command_row(command);
  if (topic.empty()) {
    size_t hidden = 0;
    for (const OptionRow& option : option_table())
      hidden += belongs_to(option, command) && option.advanced ? 1 : 0;
    std::string out =
        header(row) + grouped(command, [](const OptionRow& option) { return !option.advanced; });
    if (hidden > 0) out += fmt::format("\n{} more with --help=all; --help=WORD searches.\n", hidden);
    return out;
  }
  const std::string wanted = lower_case(topic);
  if (wanted == "all") return header(row) + grouped(command, [](const OptionRow&) { return true; });
  std::string out = grouped(command, [&](const OptionRow& option) {
    return lower_case(option_group_name(option.group)) == wanted;
  });
  if (out.empty()) out = grouped(command, [&](const OptionRow& option) { return mentions(option, wanted); });
  if (out.empty()) return no_such_topic(topic);
  return out.substr(1);
}

Result<std::string> program_topic_text(std::string_view topic) {
  const std::string wanted = lower_case(topic);
  std::string out;
  for (const CommandRow& row : command_table()) {
    if (wanted == "all") {
      out += fmt::format("== mlxcel {}\n{}\n", row.name, *command_help_text(row.command, "all"));
      continue;
    }
    const std::string found = grouped(row.command, [&](const OptionRow& option) {
      return option.name != "help" &&
             (mentions(option, wanted) || lower_case(option_group_name(option.group)) == wanted);
    });
    if (!found.empty()) out += fmt::format("== mlxcel {}{}\n", row.name, found);
  }
  if (out.empty()) return no_such_topic(topic);
  return out;
}

}  // namespace mlxcel
