// Every command and every option of the program, one row each: names, environment names, type, default,
// range, group, help. Parsing, --help, --print-config, completion and the tests all read these two tables;
// nothing else knows a flag.
//
// Owner: constant data. Threads: free to read.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mlxcel {

enum class Command : uint32_t {
  kRun,
  kGenerate,
  kServe,
  kInspect,
  kTokenize,
  kTemplate,
  kScore,
  kBenchDecode,
  kBenchServe,
  kList,
  kPull,
  kVersion,
  kCompletion,
  kMan,
};
using CommandSet = uint32_t;
constexpr CommandSet command_bit(Command command) { return CommandSet{1} << static_cast<uint32_t>(command); }

struct CommandRow {
  Command command;
  std::string_view name;       // "bench decode": two words are two arguments
  std::string_view aliases;    // separated by blanks
  std::string_view arguments;  // of the usage line: "MODEL"
  std::string_view summary;
  std::string_view examples[2];
  size_t max_arguments;                  // words that are no flag
  std::string_view argument_words = {};  // the first of them is one of these; empty: anything
};

enum class OptionType {
  kBoolean,  // --x / --no-x
  kInteger,
  kCount,          // integer with k, K, m, M, g, G
  kSize,           // bytes with a unit
  kSizeOrPercent,  // bytes with a unit, or "50%" (kept as a double)
  kDuration,       // seconds, from a number with a unit
  kNumber,
  kText,
  kChoice,  // one of `choices`
};

enum class OptionGroup {
  kGeneral,
  kModel,
  kInput,
  kOutput,
  kSampling,
  kServer,
  kBatching,
  kSpeculation,
  kCompute,
  kKvCache,
  kDownload,
  kEnvironment
};
std::string_view option_group_name(OptionGroup group);
std::span<const OptionGroup> option_groups();

struct OptionRow {
  std::string_view name = {};  // long name without dashes; also the key in Settings
  std::string_view aliases =
      {};  // other spellings with their dashes, separated by blanks: "-c --max-model-len"
  std::string_view environment = {};  // variable names, the first that is set wins
  OptionType type = OptionType::kText;
  std::string_view value_name = {};     // "N", "FILE"; empty for booleans
  std::string_view default_text = {};   // parsed like a flag's value; empty: no value
  std::string_view serve_default = {};  // instead of default_text where the command is serve; empty: the same
  double minimum = 0.0, maximum = 0.0;  // numbers, inclusive; equal: no limits
  std::string_view choices = {};  // kChoice: the values; other types: words accepted beside them ("auto")
  OptionGroup group = OptionGroup::kGeneral;
  CommandSet commands = 0;
  bool repeatable = false;
  bool advanced = false;            // only in --help=all and searches
  bool environment_only = false;    // no flag
  bool secret = false;              // never printed
  std::string_view conflicts = {};  // names that cannot be given together with this one
  std::string_view help = {};
};

std::span<const CommandRow> command_table();
std::span<const OptionRow> option_table();
const CommandRow& command_row(Command command);
// nullptr: no such option. REQUIRES nothing of the name.
const OptionRow* find_option(std::string_view name);
inline std::string_view default_of(const OptionRow& row, Command command) {
  return command == Command::kServe && !row.serve_default.empty() ? row.serve_default : row.default_text;
}
inline bool belongs_to(const OptionRow& row, Command command) {
  return (row.commands & command_bit(command)) != 0;
}

// "a b c" -> {"a", "b", "c"}.
std::vector<std::string_view> split_words(std::string_view text);

}  // namespace mlxcel
