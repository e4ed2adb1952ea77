#include "options/config_file.h"

#include <fmt/format.h>

#include <toml++/toml.h>
#include <algorithm>

#include "base/file.h"
#include "base/suggest.h"

namespace mlxcel {
namespace {

constexpr uint64_t kMaxConfigBytes = uint64_t{1} << 20;

struct Place {
  const std::string& path;
  std::string at(const toml::node& node) const {
    return fmt::format("{}:{}", path, node.source().begin.line);
  }
};

Error config_error(std::string what, std::string where, std::string expected = {}, std::string found = {},
                   std::string hint = {}) {
  return make_error(ErrorKind::kInvalidArgument, std::move(what), std::move(where), std::move(expected),
                    std::move(found), std::move(hint));
}

bool can_be_configured(const OptionRow& row) {
  return !row.environment_only && row.name != "help" && row.name != "config" && row.name != "print-config";
}

// nullopt: an option of any command counts.
const OptionRow* find_key(std::string_view key, std::optional<Command> command) {
  for (const OptionRow& row : option_table()) {
    if (row.name == key && can_be_configured(row) && (!command || belongs_to(row, *command))) return &row;
  }
  return nullptr;
}

Error unknown_key(const std::string& key, std::optional<Command> command, const std::string& where) {
  std::vector<std::string> known;
  for (const OptionRow& row : option_table()) {
    if (can_be_configured(row) && (!command || belongs_to(row, *command))) known.emplace_back(row.name);
  }
  if (!command) {
    for (const CommandRow& row : command_table()) known.emplace_back(row.name);
  }
  const auto nearest = closest_word(key, known);
  std::string hint = nearest ? fmt::format("did you mean '{}'?", *nearest)
                             : "keys are the long names of flags, without dashes in front";
  if (!nearest && command && find_key(key, std::nullopt) != nullptr)
    hint = fmt::format("'{}' is no setting of 'mlxcel {}'", key, command_row(*command).name);
  return config_error("unknown key in the configuration", where, "", fmt::format("'{}'", key),
                      std::move(hint));
}

// What the node says, as a flag's value would be spelt; nullopt: a kind of value that the option cannot have.
std::optional<std::string> value_text(const OptionRow& row, const toml::node& node) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* value = node.as_boolean(); value != nullptr && row.type == OptionType::kBoolean)
    return value->get() ? "true" : "false";
  const bool is_number =
      row.type != OptionType::kBoolean && row.type != OptionType::kText && row.type != OptionType::kChoice;
  if (const auto* value = node.as_integer(); value != nullptr && is_number)
    return fmt::format("{}", value->get());
  if (const auto* value = node.as_floating_point(); value != nullptr && is_number)
    return fmt::format("{}", value->get());
  return std::nullopt;
}

Result<SettingValue> read_value(const OptionRow& row, const toml::node& node, const Place& place) {
  const std::string source = fmt::format("{} ({})", place.at(node), row.name);
  if (const toml::array* list = node.as_array(); list != nullptr && row.repeatable) {
    std::vector<std::string> values;
    for (const toml::node& entry : *list) {
      const auto text = value_text(row, entry);
      if (!text) return config_error("wrong value", source, "a list of texts");
      values.push_back(*text);
    }
    return SettingValue(std::move(values));
  }
  const auto text = value_text(row, node);
  if (!text) {
    std::string_view expected = "a text in quotes";
    if (row.type == OptionType::kBoolean) expected = "true or false";
    if (row.type == OptionType::kInteger || row.type == OptionType::kCount || row.type == OptionType::kNumber)
      expected = "a number";
    return config_error("wrong value", source, std::string(expected), "another kind of value");
  }
  return parse_setting(row, *text, source);
}

// Settings of one table; `command`: the table's own, nullopt at the top of the file.
Status read_table(const toml::table& table, std::optional<Command> command, Command wanted,
                  const Place& place, Settings& settings) {
  for (const auto& [name, node] : table) {
    const std::string key(name.str());
    if (!command && node.is_table()) continue;  // read_commands
    const OptionRow* row = find_key(key, command);
    if (row == nullptr) return unknown_key(key, command, place.at(node));
    if (row->secret) {
      return config_error("secrets are not kept in the configuration",
                          fmt::format("{} ({})", place.at(node), key),
                          fmt::format("{}-file with the name of a file that only you can read", key));
    }
    MLXCEL_ASSIGN_OR_RETURN(SettingValue value, read_value(*row, node, place));
    if (command.value_or(wanted) != wanted || !belongs_to(*row, wanted)) continue;
    settings.set(*row, Setting{std::move(value), Origin::kConfigFile, place.at(node)});
  }
  return ok_status();
}

Status read_commands(const toml::table& root, Command wanted, const Place& place, Settings& settings) {
  for (const auto& [name, node] : root) {
    const toml::table* table = node.as_table();
    if (table == nullptr) continue;
    const auto rows = command_table();
    const auto row =
        std::find_if(rows.begin(), rows.end(), [&](const CommandRow& r) { return r.name == name.str(); });
    if (row == rows.end()) return unknown_key(std::string(name.str()), std::nullopt, place.at(node));
    MLXCEL_RETURN_IF_ERROR(read_table(*table, row->command, wanted, place, settings));
  }
  return ok_status();
}

}  // namespace

Status read_config_file(const std::string& path, Command command, Settings& settings) {
  auto text = read_file(path, kMaxConfigBytes);
  if (!text.ok()) {
    text.error().kind = ErrorKind::kInvalidArgument;
    return text.error();
  }
  toml::table root;
  try {
    root = toml::parse(*text, path);
  } catch (const toml::parse_error& error) {
    return config_error("the configuration is no TOML", fmt::format("{}:{}", path, error.source().begin.line),
                        "", std::string(error.description()));
  }
  const Place place{path};
  MLXCEL_RETURN_IF_ERROR(read_table(root, std::nullopt, command, place, settings));
  return read_commands(root, command, place, settings);
}

}  // namespace mlxcel
