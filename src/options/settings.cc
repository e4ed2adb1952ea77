#include "options/settings.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/environment.h"
#include "base/suggest.h"
#include "options/values.h"

namespace mlxcel {
namespace {

std::string join(const std::vector<std::string_view>& words) {
  return fmt::format("{}", fmt::join(words, ", "));
}

Error value_error(const OptionRow& row, std::string_view text, std::string_view source,
                  std::string expected) {
  const std::vector<std::string_view> words = split_words(row.choices);
  if (!words.empty() && row.type != OptionType::kChoice) expected += fmt::format(", or {}", join(words));
  Error error = make_error(ErrorKind::kInvalidArgument, "wrong value", std::string(source),
                           std::move(expected), row.secret ? "(hidden)" : fmt::format("'{}'", text));
  if (row.type == OptionType::kChoice) {
    const std::vector<std::string> candidates(words.begin(), words.end());
    if (const auto nearest = closest_word(text, candidates))
      error.hint = fmt::format("did you mean '{}'?", *nearest);
  }
  return error;
}

std::string number_text(double value) { return fmt::format("{}", value); }

std::string range_text(const OptionRow& row) {
  if (row.minimum == row.maximum) return "";
  return fmt::format(" from {} to {}", number_text(row.minimum), number_text(row.maximum));
}

bool in_range(const OptionRow& row, double value) {
  return row.minimum == row.maximum || (value >= row.minimum && value <= row.maximum);
}

Result<SettingValue> parse_number_setting(const OptionRow& row, std::string_view text,
                                          std::string_view source) {
  if (row.type == OptionType::kNumber || row.type == OptionType::kDuration) {
    const bool is_duration = row.type == OptionType::kDuration;
    const std::optional<double> value = is_duration ? parse_duration(text) : parse_number(text);
    if (value && in_range(row, *value)) return SettingValue(*value);
    const std::string_view kind = is_duration ? "a time with its unit (250ms, 30s, 5m)" : "a number";
    return value_error(row, text, source, fmt::format("{}{}", kind, range_text(row)));
  }
  if (row.type == OptionType::kSizeOrPercent) {
    if (const auto percent = parse_percent(text)) return SettingValue(*percent);
  }
  std::optional<int64_t> value;
  std::string_view kind;
  if (row.type == OptionType::kInteger) {
    value = parse_integer(text);
    kind = "an integer";
  } else if (row.type == OptionType::kCount) {
    value = parse_count(text);
    kind = "an integer (8k is 8000, 8K is 8192)";
  } else {
    value = parse_size(text);
    kind = row.type == OptionType::kSize ? "a size with its unit (512MiB, 2GB)"
                                         : "a size with its unit (512MiB, 2GB) or a share (50%)";
  }
  if (value && in_range(row, static_cast<double>(*value))) return SettingValue(*value);
  return value_error(row, text, source, fmt::format("{}{}", kind, range_text(row)));
}

std::string value_text(const OptionRow& row, const SettingValue& value) {
  if (row.secret) return "(set)";
  if (row.type == OptionType::kSizeOrPercent && std::holds_alternative<double>(value))
    return fmt::format("{}%", std::get<double>(value));
  struct Printer {
    std::string operator()(bool v) const { return v ? "true" : "false"; }
    std::string operator()(int64_t v) const { return fmt::format("{}", v); }
    std::string operator()(double v) const { return fmt::format("{}", v); }
    std::string operator()(const std::string& v) const { return fmt::format("\"{}\"", v); }
    std::string operator()(const std::vector<std::string>& v) const {
      return fmt::format("[\"{}\"]", fmt::join(v, "\", \""));
    }
  };
  return std::visit(Printer{}, value);
}

}  // namespace

EnvironmentLookup process_environment() {
  return [](std::string_view name) { return environment_variable(std::string(name).c_str()); };
}

const Setting* Settings::checked_find(std::string_view name) const {
  MLXCEL_CHECK_MSG(find_option(name) != nullptr, name);
  return find(name);
}
const Setting* Settings::find(std::string_view name) const {
  const auto it = values_.find(name);
  return it == values_.end() ? nullptr : &it->second;
}
bool Settings::flag(std::string_view name) const {
  const Setting* setting = checked_find(name);
  return setting != nullptr && std::get<bool>(setting->value);
}
std::optional<int64_t> Settings::integer(std::string_view name) const {
  const Setting* setting = checked_find(name);
  if (setting == nullptr || std::holds_alternative<std::string>(setting->value)) return std::nullopt;
  const bool is_share =
      find_option(name)->type == OptionType::kSizeOrPercent && std::holds_alternative<double>(setting->value);
  if (is_share) return std::nullopt;
  return std::get<int64_t>(setting->value);
}
std::optional<double> Settings::percent(std::string_view name) const {
  const Setting* setting = checked_find(name);
  MLXCEL_CHECK_MSG(find_option(name)->type == OptionType::kSizeOrPercent, name);
  if (setting == nullptr || !std::holds_alternative<double>(setting->value)) return std::nullopt;
  return std::get<double>(setting->value);
}
std::optional<double> Settings::number(std::string_view name) const {
  const Setting* setting = checked_find(name);
  if (setting == nullptr || std::holds_alternative<std::string>(setting->value)) return std::nullopt;
  return std::get<double>(setting->value);
}
std::optional<std::string> Settings::text(std::string_view name) const {
  const Setting* setting = checked_find(name);
  if (setting == nullptr) return std::nullopt;
  return std::get<std::string>(setting->value);
}
std::vector<std::string> Settings::list(std::string_view name) const {
  const Setting* setting = checked_find(name);
  if (setting == nullptr) return {};
  return std::get<std::vector<std::string>>(setting->value);
}
bool Settings::is_given(std::string_view name) const {
  const Setting* setting = checked_find(name);
  return setting != nullptr && setting->origin >= Origin::kConfigFile;
}

void Settings::erase(std::string_view name) { values_.erase(name); }

void Settings::set(const OptionRow& row, Setting setting) {
  const auto it = values_.find(row.name);
  if (it == values_.end()) {
    values_.emplace(row.name, std::move(setting));
  } else if (setting.origin >= it->second.origin) {
    it->second = std::move(setting);
  }
}

Result<SettingValue> parse_setting(const OptionRow& row, std::string_view text, std::string_view source) {
  const std::vector<std::string_view> words = split_words(row.choices);
  const bool is_word = std::find(words.begin(), words.end(), text) != words.end();
  switch (row.type) {
    case OptionType::kBoolean: {
      const std::optional<bool> value = parse_boolean(text);
      if (!value) return value_error(row, text, source, "one of 1, 0, true, false, on, off, yes, no");
      return SettingValue(*value);
    }
    case OptionType::kText:
      if (row.repeatable) return SettingValue(std::vector<std::string>{std::string(text)});
      return SettingValue(std::string(text));
    case OptionType::kChoice:
      if (is_word) return SettingValue(std::string(text));
      return value_error(row, text, source, fmt::format("one of {}", join(words)));
    default:
      if (is_word) return SettingValue(std::string(text));
      return parse_number_setting(row, text, source);
  }
}

std::string describe_settings(const Settings& settings, bool only_given) {
  std::string out;
  for (const OptionRow& row : option_table()) {
    const Setting* setting = settings.find(row.name);
    if (setting == nullptr || row.name == "help" || row.name == "print-config") continue;
    if (only_given && setting->origin == Origin::kBuiltIn) continue;
    // A summary tells neither prompts nor where folders are.
    if (only_given && (row.group == OptionGroup::kInput || row.group == OptionGroup::kEnvironment)) continue;
    out += fmt::format("{:<24} {:<28} {}\n", row.name, value_text(row, setting->value), setting->source);
  }
  return out;
}

}  // namespace mlxcel
