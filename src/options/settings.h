// The settings of one command: each option's value and where it came from. Order of sources: flag,
// environment, the file of --config, the model's generation_config.json (sampling only), built-in default.
//
// Owner: the command. Threads: a value.
// Invariant: values were checked against their row (type, range, choices) when they were set.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/error.h"
#include "options/option_table.h"

namespace mlxcel {

enum class Origin { kBuiltIn, kModelFile, kConfigFile, kEnvironment, kFlag };

// The text values of repeatable options are lists; the words of `choices` of a number ("auto") stay text.
using SettingValue = std::variant<bool, int64_t, double, std::string, std::vector<std::string>>;
struct Setting {
  SettingValue value;
  Origin origin = Origin::kBuiltIn;
  std::string source;  // "--temp", "MLXCEL_TEMP", "config.toml:3", "generation_config.json", "built-in"
};

// Reads one variable; apps/ passes the process's own, tests a table.
using EnvironmentLookup = std::function<std::optional<std::string>(std::string_view name)>;
EnvironmentLookup process_environment();

class Settings {
 public:
  // Asking for a name that is in no row, or with the wrong type, is our own bug and aborts.
  bool flag(std::string_view name) const;                       // false when not set
  std::optional<int64_t> integer(std::string_view name) const;  // nullopt: not set, or a word such as "auto"
  std::optional<double> number(std::string_view name) const;
  // Of an option that takes a size or a share: the share in per cent; integer() then gives nullopt.
  std::optional<double> percent(std::string_view name) const;
  std::optional<std::string> text(std::string_view name) const;
  std::vector<std::string> list(std::string_view name) const;
  // True when a flag, the environment or the configuration set it.
  bool is_given(std::string_view name) const;
  const Setting* find(std::string_view name) const;
  const std::map<std::string_view, Setting>& all() const { return values_; }

  // Replaces an earlier value of a weaker or equal origin; a stronger one stays.
  void set(const OptionRow& row, Setting setting);
  void erase(std::string_view name);

 private:
  const Setting* checked_find(std::string_view name) const;
  std::map<std::string_view, Setting> values_;  // keys point into the option table
};

// Text of a flag, a variable or a default to a value of the row's type; the error names `source`.
Result<SettingValue> parse_setting(const OptionRow& row, std::string_view text, std::string_view source);
// "top-k = 40   built-in" for every set option in table order; secrets show as "(set)".
std::string describe_settings(const Settings& settings, bool only_given);

}  // namespace mlxcel
