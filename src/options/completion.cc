#include "options/completion.h"

#include <fmt/format.h>

#include <algorithm>

namespace mlxcel {
namespace {

constexpr std::string_view kBench = "bench ";  // the commands of two words

std::vector<std::string> flags_of(const OptionRow& row) {
  std::vector<std::string> flags = {fmt::format("--{}", row.name)};
  for (const std::string_view alias : split_words(row.aliases)) flags.emplace_back(alias);
  if (row.type == OptionType::kBoolean) flags.push_back(fmt::format("--no-{}", row.name));
  return flags;
}

std::vector<const OptionRow*> options_of(Command command) {
  std::vector<const OptionRow*> rows;
  for (const OptionRow& row : option_table()) {
    if (belongs_to(row, command) && !row.environment_only) rows.push_back(&row);
  }
  return rows;
}

// "run|chat": the spellings of a command, for a case of a shell.
std::string pattern_of(const CommandRow& row, std::string_view separator) {
  std::string pattern = fmt::format("{}", row.name);
  for (const std::string_view alias : split_words(row.aliases))
    pattern += fmt::format("{}{}", separator, alias);
  return pattern;
}

struct Entry {
  std::string name;
  std::string_view summary;
};
// The first words of the program, and the second words of "bench".
std::vector<Entry> first_words() {
  std::vector<Entry> words;
  for (const CommandRow& row : command_table()) {
    if (!row.name.starts_with(kBench)) words.push_back({std::string(row.name), row.summary});
  }
  words.push_back({"bench", "Measure speed"});
  words.push_back({"help", "Explain a command"});
  return words;
}
std::vector<Entry> bench_words() {
  std::vector<Entry> words;
  for (const CommandRow& row : command_table()) {
    if (row.name.starts_with(kBench))
      words.push_back({std::string(row.name.substr(kBench.size())), row.summary});
  }
  return words;
}
std::string names_of(const std::vector<Entry>& entries) {
  std::string names;
  for (const Entry& entry : entries) names += (names.empty() ? "" : " ") + entry.name;
  return names;
}

// Inside single quotes of a POSIX shell and of zsh.
std::string quoted(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\'') {
      out += "'\\''";
    } else {
      out += c;
    }
  }
  return out;
}
std::string fish_quoted(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\'' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

std::string bash_values(CompletionKind kind, std::string_view words) {
  switch (kind) {
    case CompletionKind::kWords:
      return fmt::format("'words {}'", words);
    case CompletionKind::kFiles:
      return "files";
    case CompletionKind::kModels:
      return "models";
    case CompletionKind::kNothing:
      break;
  }
  return "nothing";
}

std::string bash_case(const CommandRow& command) {
  std::string flags, values;
  for (const OptionRow* row : options_of(command.command)) {
    const std::vector<std::string> spellings = flags_of(*row);
    flags += fmt::format(" {}", fmt::join(spellings, " "));
    if (row->type == OptionType::kBoolean) continue;
    values += fmt::format("        {}) values={} ;;\n", fmt::join(spellings, "|"),
                          bash_values(value_completion(*row), row->choices));
  }
  std::string name = pattern_of(command, "|");
  if (command.name.starts_with(kBench)) name = fmt::format("'{}'", command.name);
  return fmt::format("    {})\n      flags='{}'\n      words={}\n      case $previous in\n{}      esac ;;\n",
                     name, flags.substr(1), bash_values(argument_completion(command), command.argument_words),
                     values);
}

std::string zsh_escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == '\\') out += '\\';
    out += c;
  }
  return quoted(out);
}

std::string zsh_action(CompletionKind kind, std::string_view words) {
  switch (kind) {
    case CompletionKind::kWords:
      return fmt::format("({})", words);
    case CompletionKind::kFiles:
      return "_files";
    case CompletionKind::kModels:
      return "_mlxcel_models";
    case CompletionKind::kNothing:
      break;
  }
  return "( )";  // a value is wanted, and none is known
}

std::string zsh_option(const OptionRow& row) {
  std::vector<std::string> spellings = flags_of(row);
  const std::string prefix = row.repeatable ? "'*'" : fmt::format("'({})'", fmt::join(spellings, " "));
  std::string tail = fmt::format("'[{}]", zsh_escaped(row.help));
  if (row.type != OptionType::kBoolean) {
    for (std::string& spelling : spellings) {
      if (spelling.starts_with("--")) spelling += "=";  // --flag=value and --flag value
    }
    tail += fmt::format(":{}:{}", row.value_name, zsh_action(value_completion(row), row.choices));
  }
  tail += "'";
  std::string names = spellings.front();
  if (spellings.size() > 1) names = fmt::format("{{{}}}", fmt::join(spellings, ","));
  return fmt::format("        {}{}{} \\\n", prefix, names, tail);
}

std::string zsh_case(const CommandRow& command) {
  std::string out = fmt::format("    {})\n      _arguments : \\\n", command.name.starts_with(kBench)
                                                                        ? fmt::format("'{}'", command.name)
                                                                        : pattern_of(command, "|"));
  for (const OptionRow* row : options_of(command.command)) out += zsh_option(*row);
  const CompletionKind kind = argument_completion(command);
  if (command.max_arguments == 0) {
    out += "        && return 0 ;;\n";
  } else {
    out += fmt::format("        '::argument:{}' '*::text:( )' && return 0 ;;\n",
                       zsh_action(kind, command.argument_words));
  }
  return out;
}

std::string zsh_list(const std::vector<Entry>& entries) {
  std::string out;
  for (const Entry& entry : entries) out += fmt::format(" '{}:{}'", entry.name, quoted(entry.summary));
  return out;
}

std::string fish_action(CompletionKind kind, std::string_view words) {
  switch (kind) {
    case CompletionKind::kWords:
      return fmt::format(" -x -a '{}'", words);
    case CompletionKind::kFiles:
      return " -r -F";
    case CompletionKind::kModels:
      return " -r -F -a '(__mlxcel_models)'";
    case CompletionKind::kNothing:
      break;
  }
  return " -x";
}

std::string fish_option(std::string_view program, const std::string& condition, const OptionRow& row) {
  std::string names;
  for (const std::string& flag : flags_of(row)) {
    if (flag == fmt::format("--no-{}", row.name)) continue;
    if (flag.starts_with("--")) {
      names += fmt::format(" -l {}", flag.substr(2));
    } else {
      names += fmt::format(" -{} {}", flag.size() == 2 ? 's' : 'o', flag.substr(1));
    }
  }
  std::string out = fmt::format("complete -c {}{}{}", program, condition, names);
  if (row.type != OptionType::kBoolean) out += fish_action(value_completion(row), row.choices);
  out += fmt::format(" -d '{}'\n", fish_quoted(row.help));
  if (row.type == OptionType::kBoolean) {
    out += fmt::format("complete -c {}{} -l no-{} -d 'not: {}'\n", program, condition, row.name,
                       fish_quoted(row.help));
  }
  return out;
}

std::string fish_command(const CommandRow& command, std::string_view program) {
  std::string condition;
  if (program != "mlxcel-server") {
    std::string names = pattern_of(command, " ");
    if (command.name.starts_with(kBench)) names = fmt::format("\"{}\"", command.name);
    condition = fmt::format(" -n '__mlxcel_command_is {}'", names);
  }
  std::string out;
  for (const OptionRow* row : options_of(command.command)) out += fish_option(program, condition, *row);
  switch (argument_completion(command)) {
    case CompletionKind::kWords:
      out += fmt::format("complete -c {}{} -f -a '{}'\n", program, condition, command.argument_words);
      break;
    case CompletionKind::kModels:
      out += fmt::format("complete -c {}{} -F -a '(__mlxcel_models)'\n", program, condition);
      break;
    case CompletionKind::kFiles:
      out += fmt::format("complete -c {}{} -F\n", program, condition);
      break;
    case CompletionKind::kNothing:
      break;
  }
  return out;
}

constexpr std::string_view kBashHead = R"sh(# bash completion of mlxcel, made by: mlxcel completion bash
_mlxcel_reply() {  # WHAT CURRENT PROGRAM
  case $1 in
    words\ *) mapfile -t COMPREPLY < <(compgen -W "${1#words }" -- "$2") ;;
    files)
      compopt -o filenames 2>/dev/null
      mapfile -t COMPREPLY < <(compgen -f -- "$2") ;;
    models)
      mapfile -t COMPREPLY < <(compgen -W "$("${3%-server}" list --quiet 2>/dev/null)" -- "$2")
      if [ ${#COMPREPLY[@]} -eq 0 ]; then
        compopt -o filenames 2>/dev/null
        mapfile -t COMPREPLY < <(compgen -f -- "$2")
      fi ;;
  esac
}
_mlxcel() {
  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} program=${COMP_WORDS[0]}
  local command flags='' words=nothing values=''
  COMPREPLY=()
  # bash splits at '=' and ':'; --flag=value is a flag and its value.
  if [ "$current" = '=' ]; then
    current=''
  elif [ "$previous" = '=' ]; then
    previous=${COMP_WORDS[COMP_CWORD-2]}
  elif [ "$current" = ':' ] || [ "$previous" = ':' ]; then
    return 0
  fi
  if [ "${program##*/}" = mlxcel-server ]; then
    command=serve
  elif [ "$COMP_CWORD" -eq 1 ]; then
)sh";

constexpr std::string_view kZshHead = R"sh(#compdef mlxcel mlxcel-server
# zsh completion of mlxcel, made by: mlxcel completion zsh
_mlxcel_models() {
  local -a models
  models=(${(f)"$(${mlxcel_program%-server} list --quiet 2>/dev/null)"})
  (( $#models )) && compadd -X model -a models
  _files
}
_mlxcel() {
  local mlxcel_program=$words[1] command
  local -a entries
  if [[ ${words[1]:t} == mlxcel-server ]]; then
    command=serve
  elif (( CURRENT == 2 )); then
)sh";

constexpr std::string_view kFishHead = R"sh(# fish completion of mlxcel, made by: mlxcel completion fish
function __mlxcel_command_is
    set -l words (commandline -opc)
    set -l command $words[2]
    if test "$command" = bench
        set command "bench $words[3]"
    end
    contains -- "$command" $argv
end
function __mlxcel_needs_command
    test (count (commandline -opc)) -eq 1
end
function __mlxcel_needs_second
    set -l words (commandline -opc)
    test (count $words) -eq 2; and test "$words[2]" = $argv[1]
end
function __mlxcel_models
    set -l program (string replace -r -- '-server$' '' (commandline -opc)[1])
    $program list --quiet 2>/dev/null
end
)sh";

}  // namespace

CompletionKind value_completion(const OptionRow& row) {
  if (row.type == OptionType::kBoolean) return CompletionKind::kNothing;
  if (!row.choices.empty()) return CompletionKind::kWords;
  if (row.value_name == "FILE") return CompletionKind::kFiles;
  if (row.value_name == "MODEL") return CompletionKind::kModels;
  return CompletionKind::kNothing;
}

CompletionKind argument_completion(const CommandRow& row) {
  if (!row.argument_words.empty()) return CompletionKind::kWords;
  if (row.arguments.find("MODEL") < 2 || row.arguments.starts_with("OWNER/NAME"))
    return CompletionKind::kModels;
  return row.arguments.find("FILE") < 2 ? CompletionKind::kFiles : CompletionKind::kNothing;
}

std::string bash_completion() {
  const std::string commands = names_of(first_words()), benches = names_of(bench_words());
  std::string out(kBashHead);
  out += fmt::format(
      "    _mlxcel_reply 'words {} --help --version' \"$current\" \"$program\"\n    return 0\n", commands);
  out += "  else\n    command=${COMP_WORDS[1]}\n    if [ \"$command\" = bench ]; then\n";
  out += "      if [ \"$COMP_CWORD\" -eq 2 ]; then\n";
  out += fmt::format("        _mlxcel_reply 'words {}' \"$current\" \"$program\"\n", benches);
  out +=
      "        return 0\n      fi\n      command=\"bench ${COMP_WORDS[2]}\"\n    fi\n  fi\n  case $command "
      "in\n";
  for (const CommandRow& row : command_table()) out += bash_case(row);
  out += fmt::format("    help) words='words {}' ;;\n  esac\n", commands);
  out += "  if [ -n \"$values\" ]; then\n    _mlxcel_reply \"$values\" \"$current\" \"$program\"\n";
  out += "  elif [[ $current == -* ]]; then\n    _mlxcel_reply \"words $flags\" \"$current\" \"$program\"\n";
  out += "  else\n    _mlxcel_reply \"$words\" \"$current\" \"$program\"\n  fi\n}\n";
  out += "complete -F _mlxcel mlxcel mlxcel-server\n";
  return out;
}

std::string zsh_completion() {
  std::string out(kZshHead);
  out += fmt::format("    entries=({})\n    _describe command entries\n    return\n  else\n",
                     zsh_list(first_words()));
  out += "    command=$words[2]\n    shift words\n    (( CURRENT-- ))\n";
  out += "    if [[ $command == bench ]]; then\n      if (( CURRENT == 2 )); then\n";
  out += fmt::format("        entries=({})\n        _describe command entries\n        return\n      fi\n",
                     zsh_list(bench_words()));
  out += "      command=\"bench $words[2]\"\n      shift words\n      (( CURRENT-- ))\n    fi\n  fi\n";
  out += "  case $command in\n";
  for (const CommandRow& row : command_table()) out += zsh_case(row);
  out += fmt::format(
      "    help)\n      entries=({})\n      _describe command entries\n      return ;;\n  esac\n  return "
      "1\n}}\n",
      zsh_list(first_words()));
  // Autoloaded from a folder of $fpath the file is the function; sourced, it registers it.
  out +=
      "if [[ $funcstack[1] == _mlxcel ]]; then\n  _mlxcel \"$@\"\nelse\n  compdef _mlxcel mlxcel "
      "mlxcel-server\nfi\n";
  return out;
}

std::string fish_completion() {
  std::string out(kFishHead);
  out += "complete -c mlxcel -f\n";
  const auto list = [&](const std::string& condition, const std::vector<Entry>& entries) {
    for (const Entry& entry : entries) {
      out += fmt::format("complete -c mlxcel -n '{}' -f -a {} -d '{}'\n", condition, entry.name,
                         fish_quoted(entry.summary));
    }
  };
  list("__mlxcel_needs_command", first_words());
  list("__mlxcel_needs_second bench", bench_words());
  list("__mlxcel_needs_second help", first_words());
  for (const CommandRow& row : command_table()) out += fish_command(row, "mlxcel");
  out += fish_command(command_row(Command::kServe), "mlxcel-server");
  return out;
}

}  // namespace mlxcel
