#include "options/reference.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "options/option_table.h"

namespace mlxcel {
namespace {

// Plain text in roff: hyphens that can be copied, no accidental request at the start of a line.
std::string roff(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '-') {
      out += "\\-";
    } else if (c == '\\') {
      out += "\\e";
    } else if (c == '\'' || c == '"') {
      out += c == '"' ? "\\(dq" : "\\(aq";
    } else if (c == '~' || c == '^' || c == '`') {
      out += c == '~' ? "\\(ti" : c == '^' ? "\\(ha" : "\\(ga";
    } else {
      out += c;
    }
  }
  if (out.starts_with('.')) out.insert(0, "\\&");
  return out;
}

std::vector<std::string> spellings(const OptionRow& row) {
  std::vector<std::string> names;
  for (const std::string_view alias : split_words(row.aliases)) {
    if (!alias.starts_with("--")) names.emplace_back(alias);
  }
  names.push_back(fmt::format("--{}", row.name));
  for (const std::string_view alias : split_words(row.aliases)) {
    if (alias.starts_with("--")) names.emplace_back(alias);
  }
  if (row.type == OptionType::kBoolean) names.push_back(fmt::format("--no-{}", row.name));
  return names;
}

std::vector<std::string_view> commands_of(const OptionRow& row) {
  std::vector<std::string_view> names;
  for (const CommandRow& command : command_table()) {
    if (belongs_to(row, command.command)) names.push_back(command.name);
  }
  return names;
}
bool is_for_all(const OptionRow& row) { return commands_of(row).size() == command_table().size(); }

// What a value may be, without the default: "error, warning", "from 0 to 1, or auto".
std::string allowed(const OptionRow& row) {
  const std::string words = fmt::format("{}", fmt::join(split_words(row.choices), ", "));
  if (row.type == OptionType::kChoice) return words;
  std::string text;
  if (row.type == OptionType::kSize) text = "bytes with a unit, as 512MiB";
  if (row.type == OptionType::kDuration) text = "a time with a unit, as 30s";
  if (row.minimum != row.maximum && row.type != OptionType::kDuration)
    text += fmt::format("{}{} to {}", text.empty() ? "" : ", ", row.minimum, row.maximum);
  if (!words.empty()) text += fmt::format("{}{}", text.empty() ? "" : ", or ", words);
  return text;
}
std::string default_value(const OptionRow& row) {
  if (row.type == OptionType::kBoolean) return row.default_text == "true" ? "on" : "off";
  std::string text(row.default_text);
  if (!row.serve_default.empty()) text += fmt::format(" (serve: {})", row.serve_default);
  return text;
}

std::string roff_option(const OptionRow& row, bool with_commands) {
  std::string out = ".TP\n";
  if (row.environment_only) {
    out += fmt::format(".B {}\n", roff(row.environment));
  } else {
    std::vector<std::string> names;
    for (const std::string& name : spellings(row)) names.push_back(fmt::format("\\fB{}\\fR", roff(name)));
    out += fmt::format("{}{}\n", fmt::join(names, ", "),
                       row.value_name.empty() ? "" : fmt::format(" \\fI{}\\fR", roff(row.value_name)));
  }
  out += fmt::format("{}.\n", roff(row.help));
  if (const std::string values = allowed(row); !values.empty())
    out += fmt::format("Values: {}.\n", roff(values));
  if (const std::string text = default_value(row); !text.empty())
    out += fmt::format("Default: {}.\n", roff(text));
  if (!row.environment.empty() && !row.environment_only) {
    out += fmt::format("Environment: {}.\n",
                       roff(fmt::format("{}", fmt::join(split_words(row.environment), ", "))));
  }
  if (with_commands && !is_for_all(row))
    out += fmt::format("Commands: {}.\n", roff(fmt::format("{}", fmt::join(commands_of(row), ", "))));
  return out;
}

std::string roff_options(const std::function<bool(const OptionRow&)>& wanted, bool with_commands) {
  std::string out;
  for (const OptionGroup group : option_groups()) {
    std::string rows;
    for (const OptionRow& row : option_table()) {
      if (row.group == group && wanted(row)) rows += roff_option(row, with_commands);
    }
    if (!rows.empty()) out += fmt::format(".SS {}\n{}", option_group_name(group), rows);
  }
  return out;
}

constexpr std::string_view kPrecedence =
    "A setting comes from its flag, else from the environment, else from the file of \\fB\\-\\-config\\fR, "
    "else\n"
    "(sampling only) from the model\\(aqs \\fIgeneration_config.json\\fR, else it is the built\\-in "
    "default.\n"
    "\\fB\\-\\-print\\-config\\fR shows every value with its origin.\n";
constexpr std::string_view kExitStatus =
    ".SH EXIT STATUS\n"
    "0: done. 1: failure while running. 2: usage. 3: model missing or invalid. 4: not enough memory.\n"
    "130: ended by Ctrl\\-C.\n";
constexpr std::string_view kFiles =
    ".SH FILES\n.TP\n.I \\(ti/.cache/mlxcel\nModels (\\fImodels/owner/name\\fR), the history of "
    "conversations, and\n"
    "the list of running servers (\\fIrun\\fR). \\fBMLXCEL_HOME\\fR moves it.\n"
    ".TP\n.I \\(ti/.cache/huggingface\nThe Hugging Face cache; only read. \\fBHF_HOME\\fR moves it.\n";

std::string md_cell(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '|') out += '\\';
    if (c == '<') {
      out += "&lt;";
    } else {
      out += c;
    }
  }
  return out;
}

std::string md_command(const CommandRow& row) {
  std::string out = fmt::format("### mlxcel {}\n\n{}.", row.name, row.summary);
  if (!row.aliases.empty())
    out += fmt::format(" Also `mlxcel {}`.", fmt::join(split_words(row.aliases), "`, `"));
  out += fmt::format("\n\n```sh\nmlxcel {} [FLAGS]{}{}\n", row.name, row.arguments.empty() ? "" : " ",
                     row.arguments);
  for (const std::string_view example : row.examples) out += fmt::format("{}\n", example);
  out += "```\n\n";
  for (const OptionGroup group : option_groups()) {
    std::string names;
    for (const OptionRow& option : option_table()) {
      if (option.group != group || !belongs_to(option, row.command) || is_for_all(option)) continue;
      names += fmt::format(
          "{}`{}`", names.empty() ? "" : ", ",
          option.environment_only ? std::string(option.environment) : fmt::format("--{}", option.name));
    }
    if (!names.empty()) out += fmt::format("* {}: {}\n", option_group_name(group), names);
  }
  return out.ends_with("\n\n") ? out : out + "\n";
}

std::string md_option(const OptionRow& row) {
  std::string name;
  if (row.environment_only) {
    name = fmt::format("`{}`", row.environment);
  } else {
    for (const std::string& spelling : spellings(row))
      name += fmt::format("{}`{}`", name.empty() ? "" : ", ", spelling);
    if (!row.value_name.empty()) name += fmt::format(" {}", row.value_name);
  }
  std::string text = md_cell(row.help);
  if (const std::string values = allowed(row); !values.empty()) text += fmt::format(" ({})", md_cell(values));
  const std::string variables = row.environment_only || row.environment.empty()
                                    ? ""
                                    : fmt::format("`{}`", fmt::join(split_words(row.environment), "`, `"));
  const std::string commands = is_for_all(row) ? "all" : fmt::format("{}", fmt::join(commands_of(row), ", "));
  return fmt::format("| {} | {} | {} | {} | {} |\n", name, text, default_value(row), variables, commands);
}

}  // namespace

std::string manual_page() {
  std::string out =
      ".\\\" Made by: mlxcel man mlxcel\n.TH MLXCEL 1 \"\" mlxcel \"User commands\"\n.SH NAME\n"
      "mlxcel \\- run and serve language models with bit\\-exact results\n.SH SYNOPSIS\n.B mlxcel\n"
      ".I COMMAND\n.RI [ FLAGS ]\n.SH DESCRIPTION\n"
      "Loads a checkpoint folder (Hugging Face safetensors, MLX\\-quantised weights) or a GGUF file and runs "
      "or serves it.\n"
      "Logits and text depend on the model and the request alone: not on batch mates, storage, chunking, "
      "caching,\n"
      "speculation or threads.\n.PP\n"
      "A \\fIMODEL\\fR is a folder, a \\fI.gguf\\fR file, \\fIowner/name\\fR or \\fIowner/name:QUANT\\fR "
      "(downloaded\n"
      "before, or in the Hugging Face cache), or a bare name.\n.PP\n";
  out += kPrecedence;
  out += ".SH COMMANDS\n";
  for (const CommandRow& row : command_table()) {
    out += fmt::format(".TP\n\\fBmlxcel {}\\fR {}\n{}.\n", roff(row.name), roff(row.arguments),
                       roff(row.summary));
    if (!row.aliases.empty()) out += fmt::format("Also: {}.\n", roff(row.aliases));
  }
  out += ".SH OPTIONS\n";
  out += roff_options([](const OptionRow& row) { return !row.environment_only; }, true);
  out += ".SH ENVIRONMENT\n";
  for (const OptionRow& row : option_table()) {
    if (row.environment_only) out += roff_option(row, true);
  }
  out += kFiles;
  out += kExitStatus;
  out += ".SH EXAMPLES\n.nf\n";
  for (const CommandRow& row : command_table()) out += fmt::format("{}\n", roff(row.examples[0]));
  out += ".fi\n.SH SEE ALSO\n.BR mlxcel\\-server (1)\n";
  return out;
}

std::string server_manual_page() {
  std::string out =
      ".\\\" Made by: mlxcel man mlxcel-server\n.TH MLXCEL\\-SERVER 1 \"\" mlxcel \"User commands\"\n.SH "
      "NAME\n"
      "mlxcel\\-server \\- serve a language model over HTTP, OpenAI\\-compatible\n.SH SYNOPSIS\n.B "
      "mlxcel\\-server\n"
      ".RI [ FLAGS ]\n.RI [ MODEL ]\n.SH DESCRIPTION\n"
      "The same as \\fBmlxcel serve\\fR. Prints one line with its address on standard output when it "
      "listens, answers\n"
      "\\fI/health\\fR while the model is loaded, and tells systemd when it is ready. The first SIGTERM or "
      "SIGINT lets\n"
      "running answers finish (\\fB\\-\\-drain\\-timeout\\fR); the second ends it at once.\n.PP\n";
  out += kPrecedence;
  out += ".SH OPTIONS\n";
  out += roff_options(
      [](const OptionRow& row) { return belongs_to(row, Command::kServe) && !row.environment_only; }, false);
  out += ".SH ENVIRONMENT\n";
  for (const OptionRow& row : option_table()) {
    if (row.environment_only && belongs_to(row, Command::kServe)) out += roff_option(row, false);
  }
  out += kFiles;
  out += kExitStatus;
  out += ".SH EXAMPLES\n.nf\n";
  for (const std::string_view example : command_row(Command::kServe).examples)
    out += fmt::format("{}\n", roff(example));
  out += ".fi\n.SH SEE ALSO\n.BR mlxcel (1)\n";
  return out;
}

std::string reference_markdown() {
  std::string out =
      "# Reference of all commands and flags\n\n"
      "Made from the option table by `make docs` (`mlxcel man reference`); a test compares. What the table "
      "cannot say is in\n"
      "[cli.md](cli.md).\n\n## Commands\n\n"
      "Each also takes the flags of all commands: ";
  std::vector<std::string> common;
  for (const OptionRow& row : option_table()) {
    if (is_for_all(row) && !row.environment_only) common.push_back(fmt::format("`--{}`", row.name));
  }
  out += fmt::format("{}.\n\n", fmt::join(common, ", "));
  for (const CommandRow& row : command_table()) out += md_command(row);
  out += "## Flags\n";
  for (const OptionGroup group : option_groups()) {
    out +=
        fmt::format("\n### {}\n\n| {} | what | default | environment | commands |\n|---|---|---|---|---|\n",
                    option_group_name(group), group == OptionGroup::kEnvironment ? "variable" : "flag");
    for (const OptionRow& row : option_table()) {
      if (row.group == group) out += md_option(row);
    }
  }
  return out;
}

}  // namespace mlxcel
