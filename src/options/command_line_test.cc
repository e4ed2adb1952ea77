#include "options/command_line.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <map>
#include <set>

#include "base/file.h"
#include "options/completion.h"
#include "options/help.h"
#include "options/reference.h"

namespace mlxcel {
namespace {

using Environment = std::map<std::string, std::string, std::less<>>;

Result<CommandLine> parse(const std::vector<std::string>& words, Environment environment = {}) {
  return parse_command_line(words, [&](std::string_view name) -> std::optional<std::string> {
    const auto it = environment.find(name);
    if (it == environment.end()) return std::nullopt;
    return it->second;
  });
}

std::string error_of(const std::vector<std::string>& words, Environment environment = {}) {
  auto result = parse(words, std::move(environment));
  if (result.ok()) return "no error";
  EXPECT_EQ(result.error().kind, ErrorKind::kInvalidArgument);
  return result.error().to_string();
}

bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

// The tables themselves.

TEST(OptionTable, NamesAreUniqueWithinACommand) {
  for (const CommandRow& command : command_table()) {
    std::set<std::string> seen;
    for (const OptionRow& row : option_table()) {
      if (!belongs_to(row, command.command) || row.environment_only) continue;
      std::vector<std::string> names = {"--" + std::string(row.name)};
      if (row.type == OptionType::kBoolean) names.push_back("--no-" + std::string(row.name));
      for (const std::string_view alias : split_words(row.aliases)) names.emplace_back(alias);
      for (const std::string& name : names)
        EXPECT_TRUE(seen.insert(name).second) << command.name << " " << name;
    }
  }
}

TEST(OptionTable, EnvironmentNamesAreUniformAndUnique) {
  std::set<std::string_view> seen;
  const std::set<std::string_view> foreign = {
      "HF_HOME",        "HF_ENDPOINT",   "HF_TOKEN", "XDG_CACHE_HOME", "LLAMA_API_KEY",
      "LLAMA_LOG_FILE", "NOTIFY_SOCKET", "HOME",     "NO_COLOR",       "TERM"};
  for (const OptionRow& row : option_table()) {
    for (const std::string_view name : split_words(row.environment)) {
      EXPECT_TRUE(seen.insert(name).second) << name;
      EXPECT_TRUE(name.starts_with("MLXCEL_") || name.starts_with("LLAMA_ARG_") || foreign.contains(name))
          << name;
    }
  }
}

TEST(OptionTable, EveryRowIsUsable) {
  std::set<std::string_view> names;
  for (const OptionRow& row : option_table()) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_FALSE(row.help.empty()) << row.name;
    EXPECT_NE(row.commands, 0u) << row.name;
    EXPECT_EQ(row.value_name.empty(), row.type == OptionType::kBoolean || row.environment_only) << row.name;
    EXPECT_TRUE(row.type != OptionType::kChoice || !row.choices.empty()) << row.name;
    EXPECT_TRUE(row.default_text.empty() || parse_setting(row, row.default_text, "default").ok()) << row.name;
    for (const std::string_view other : split_words(row.conflicts))
      EXPECT_NE(find_option(other), nullptr) << other;
    EXPECT_FALSE(row.environment_only && row.environment.empty()) << row.name;
  }
}

// Every option with a variable: the flag beats it, it beats the default, nonsense in it is an error.
TEST(CommandLine, PrecedenceHoldsForEveryOption) {
  for (const CommandRow& command : command_table()) {
    for (const OptionRow& row : option_table()) {
      if (!belongs_to(row, command.command) || row.environment.empty() || row.repeatable || row.secret)
        continue;
      if (row.name == "config") continue;  // it would be read
      std::string from_environment = "1", from_flag = "2";
      if (row.type == OptionType::kBoolean) from_flag = "false";
      if (row.type == OptionType::kNumber) from_environment = "0.25", from_flag = "0.5";
      if (row.type == OptionType::kSizeOrPercent) from_environment = "1GB", from_flag = "2GB";
      if (row.type == OptionType::kSize) from_environment = "1GB", from_flag = "2GB";
      if (row.type == OptionType::kDuration) from_environment = "1s", from_flag = "2s";
      if (row.type == OptionType::kChoice) {
        from_environment = std::string(split_words(row.choices)[0]);
        from_flag = std::string(split_words(row.choices).back());
      }
      std::vector<std::string> words;
      for (const std::string_view word : split_words(command.name)) words.emplace_back(word);
      for (const std::string_view variable : split_words(row.environment)) {
        auto from_variable = parse(words, {{std::string(variable), from_environment}});
        ASSERT_TRUE(from_variable.ok()) << from_variable.error().to_string();
        EXPECT_EQ(from_variable->settings.find(row.name)->origin, Origin::kEnvironment);
        EXPECT_EQ(from_variable->settings.find(row.name)->source, variable);
        if (row.type != OptionType::kText) {
          const std::string text = error_of(words, {{std::string(variable), "ne:ither"}});
          EXPECT_TRUE(contains(text, variable)) << text;
        }
        if (row.environment_only) continue;
        std::vector<std::string> with_flag = words;
        with_flag.push_back("--" + std::string(row.name) + "=" + from_flag);
        auto both = parse(with_flag, {{std::string(variable), from_environment}});
        ASSERT_TRUE(both.ok()) << both.error().to_string();
        EXPECT_EQ(both->settings.find(row.name)->origin, Origin::kFlag) << row.name;
        EXPECT_EQ(both->settings.find(row.name)->value, *parse_setting(row, from_flag, "")) << row.name;
      }
    }
  }
}

TEST(CommandLine, ReadsFlagsOfEveryShape) {
  auto line = parse({"generate", "-m", "folder", "-p", "[1, 2]", "--temp=0.5", "-n", "8k", "--stop", "a",
                     "--stop", "b", "-ctk", "q8_0", "--no-raw", "-t4", "--json"});
  ASSERT_TRUE(line.ok()) << line.error().to_string();
  const Settings& s = line->settings;
  EXPECT_EQ(line->command, Command::kGenerate);
  EXPECT_EQ(s.text("model"), "folder");
  EXPECT_EQ(s.text("prompt"), "[1, 2]");
  EXPECT_EQ(s.number("temp"), 0.5);
  EXPECT_EQ(s.integer("max-tokens"), 8000);
  EXPECT_EQ(s.list("stop"), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(s.text("cache-type-k"), "q8_0");
  EXPECT_EQ(s.integer("threads"), 4);
  EXPECT_FALSE(s.flag("raw"));
  EXPECT_TRUE(s.flag("json"));
  EXPECT_EQ(s.find("top-k")->source, "built-in");
  EXPECT_FALSE(s.is_given("top-k"));
}

TEST(CommandLine, TakesAnyTextAsAValue) {
  for (const std::string text :
       {"", "-5", "--json", "a b", "[x]", "{\"a\": 1}", "a,b", "x=y", "zwei\nZeilen", "%%", "'q'"}) {
    auto line = parse({"generate", "-p", text});
    ASSERT_TRUE(line.ok()) << text << ": " << line.error().to_string();
    EXPECT_EQ(line->settings.text("prompt"), text);
  }
}

TEST(CommandLine, KeepsWordsAfterTheSeparator) {
  auto line = parse({"tokenize", "-m", "x", "one", "--", "--json", "[2]"});
  ASSERT_TRUE(line.ok()) << line.error().to_string();
  EXPECT_EQ(line->arguments, (std::vector<std::string>{"one", "--json", "[2]"}));
  EXPECT_FALSE(line->settings.flag("json"));
}

TEST(CommandLine, TwoWordCommandsAndAliases) {
  EXPECT_EQ(parse({"bench", "decode", "-m", "x", "--batch", "4"})->command, Command::kBenchDecode);
  EXPECT_EQ(parse({"ls"})->command, Command::kList);
  EXPECT_EQ(parse({"--version"})->command, Command::kVersion);
  EXPECT_TRUE(contains(error_of({"bench"}), "bench decode"));
}

TEST(CommandLine, UnknownWordsGetASuggestion) {
  EXPECT_TRUE(contains(error_of({"genrate"}), "did you mean 'mlxcel generate'?"));
  EXPECT_TRUE(contains(error_of({"generate", "--tmp", "1"}), "did you mean '--temp'?"));
  EXPECT_TRUE(contains(error_of({"generate", "--revision=x"}), "'mlxcel pull'"));
  EXPECT_TRUE(contains(error_of({"list", "surplus"}), "too many arguments"));
  EXPECT_TRUE(contains(error_of({"-m", "x"}), "a command comes first"));
  EXPECT_TRUE(contains(error_of({"generate", "-Z"}), "'-Z'"));
}

TEST(CommandLine, WrongValuesNameTheFlagAndWhatIsExpected) {
  EXPECT_TRUE(contains(error_of({"generate", "--temp", "hot"}), "--temp"));
  EXPECT_TRUE(
      contains(error_of({"generate", "--temp", "hot"}), "expected a number from 0 to 100, found 'hot'"));
  EXPECT_TRUE(contains(error_of({"generate", "--top-p", "1.5"}), "from 0 to 1"));
  EXPECT_TRUE(contains(error_of({"generate", "--backend", "cpuu"}), "did you mean 'cpu'?"));
  EXPECT_TRUE(contains(error_of({"generate", "-t", "0"}), "or auto"));
  EXPECT_TRUE(contains(error_of({"generate", "--kv-memory", "512"}), "with its unit"));
  EXPECT_TRUE(contains(error_of({"generate", "--kv-memory", "101%"}), "or a share"));
  EXPECT_TRUE(contains(error_of({"generate", "--kv-memory", "0%"}), "or a share"));
  EXPECT_TRUE(contains(error_of({"generate", "--raw=perhaps"}), "--raw"));
  EXPECT_TRUE(contains(error_of({"generate", "-p"}), "--prompt"));
  EXPECT_TRUE(contains(error_of({"generate"}, {{"MLXCEL_VERBOSE", "maybe"}}), "MLXCEL_VERBOSE"));
}

TEST(CommandLine, DuplicatesAndConflictsAreErrors) {
  EXPECT_TRUE(contains(error_of({"generate", "--temp", "1", "--temperature", "0"}), "more than once"));
  EXPECT_TRUE(contains(error_of({"generate", "--raw", "--no-raw"}), "more than once"));
  EXPECT_TRUE(
      contains(error_of({"run", "--chat-template", "a", "--chat-template-file", "b"}), "exclude each other"));
  EXPECT_TRUE(contains(error_of({"generate", "--raw", "--system", "b"}), "exclude each other"));
  EXPECT_TRUE(
      contains(error_of({"run"}, {{"MLXCEL_FORCE_PADDED_PREFILL", "1"}, {"MLXCEL_NO_PADDED_PREFILL", "on"}}),
               "exclude"));
  EXPECT_TRUE(
      parse({"run"}, {{"MLXCEL_FORCE_PADDED_PREFILL", "1"}, {"MLXCEL_NO_PADDED_PREFILL", "off"}}).ok());
}

TEST(CommandLine, FirstVariableOfARowWinsAndEmptyIsUnset) {
  auto line =
      parse({"run"}, {{"MLXCEL_CTX_SIZE", "4K"}, {"LLAMA_ARG_CTX_SIZE", "2048"}, {"MLXCEL_THREADS", ""}});
  ASSERT_TRUE(line.ok());
  EXPECT_EQ(line->settings.integer("ctx-size"), 4096);
  EXPECT_EQ(line->settings.find("ctx-size")->source, "MLXCEL_CTX_SIZE");
  EXPECT_EQ(line->settings.integer("threads"), std::nullopt);  // "auto"
}

TEST(CommandLine, ModelFileValuesLieBetweenEnvironmentAndBuiltIn) {
  auto line = parse({"run", "--top-k", "7"}, {{"MLXCEL_TOP_P", "0.5"}});
  ASSERT_TRUE(line.ok());
  Settings s = line->settings;
  for (const char* name : {"top-k", "top-p", "min-p"}) {
    const OptionRow& row = *find_option(name);
    const SettingValue value =
        row.type == OptionType::kInteger ? SettingValue(int64_t{9}) : SettingValue(0.25);
    s.set(row, Setting{value, Origin::kModelFile, "generation_config.json"});
  }
  EXPECT_EQ(s.integer("top-k"), 7);
  EXPECT_EQ(s.number("top-p"), 0.5);
  EXPECT_EQ(s.number("min-p"), 0.25);
  EXPECT_TRUE(contains(describe_settings(s, true), "generation_config.json"));
}

TEST(CommandLine, HelpWinsOverEverythingElse) {
  auto line = parse({"generate", "--temp", "hot", "--help=sampling"});
  ASSERT_TRUE(line.ok());
  EXPECT_TRUE(line->wants_help);
  EXPECT_EQ(line->help_topic, "sampling");
  EXPECT_TRUE(parse({})->wants_help);
  EXPECT_TRUE(parse({"-h"})->wants_help);
  EXPECT_EQ(parse({"help", "run"})->command, Command::kRun);
}

TEST(CommandLine, SecretsAreNotPrinted) {
  auto line = parse({"pull", "a/b"}, {{"HF_TOKEN", "hf_topsecret"}});
  ASSERT_TRUE(line.ok());
  EXPECT_FALSE(contains(describe_settings(line->settings, false), "topsecret"));
  EXPECT_TRUE(contains(describe_settings(line->settings, false), "(set)"));
}

// Views into a text that is gone once printed freed memory here.
TEST(Help, EveryTextIsPrintable) {
  for (const CommandRow& row : command_table()) {
    for (const char* topic : {"", "all"}) {
      const auto text = command_help_text(row.command, topic);
      ASSERT_TRUE(text.ok());
      for (const char c : *text)
        ASSERT_TRUE(c == '\n' || (c >= ' ' && c <= '~')) << row.name << "\n" << *text;
      for (const OptionRow& option : option_table()) {
        if (!belongs_to(option, row.command) || *topic == 0) continue;
        EXPECT_NE(text->find(std::string(option.help.substr(option.help.rfind(' ') + 1))), std::string::npos)
            << option.name;
      }
    }
  }
}

TEST(CommandLine, AMissingValueSaysSo) {
  const std::vector<std::string> words = {"generate", "-m", "x", "--temp"};
  const auto line = parse_command_line(words, [](std::string_view) { return std::optional<std::string>(); });
  ASSERT_FALSE(line.ok());
  EXPECT_EQ(line.error().what, "a value is missing");
  EXPECT_NE(line.error().where.find("temp"), std::string::npos) << line.error().one_line();
}

TEST(Help, GroupsSearchesAndRefuses) {
  const std::string run = *command_help_text(Command::kRun, "");
  EXPECT_LT(run.find("Examples:"), run.find("Usage:"));
  EXPECT_TRUE(contains(run, "Sampling:"));
  EXPECT_FALSE(contains(run, "--xtc-probability"));
  EXPECT_TRUE(contains(*command_help_text(Command::kRun, "all"), "--xtc-probability"));
  EXPECT_TRUE(contains(*command_help_text(Command::kRun, "kv cache"), "--cache-type-k"));
  EXPECT_FALSE(contains(*command_help_text(Command::kRun, "kv cache"), "--temp"));
  EXPECT_TRUE(contains(*command_help_text(Command::kRun, "xtc"), "--xtc-threshold"));
  EXPECT_TRUE(contains(command_help_text(Command::kRun, "zebra").error().to_string(), "Sampling"));
  EXPECT_TRUE(contains(*program_topic_text("stride"), "mlxcel score"));
  for (const CommandRow& row : command_table()) EXPECT_TRUE(contains(program_help_text(), row.name));
  for (const OptionRow& row : option_table()) {
    for (const CommandRow& command : command_table()) {
      if (!belongs_to(row, command.command) || row.environment_only) continue;
      EXPECT_TRUE(contains(*command_help_text(command.command, "all"), row.name))
          << command.name << " " << row.name;
    }
  }
}

// A configuration file in the system's temporary folder, gone afterwards.
class ConfigFile {
 public:
  explicit ConfigFile(std::string_view text)
      : path_(testing::TempDir() + fmt::format("mlxcel-config-{}.toml", ::getpid())) {
    EXPECT_TRUE(write_file_atomically(path_, text).ok());
  }
  ~ConfigFile() { ::unlink(path_.c_str()); }
  ConfigFile(const ConfigFile&) = delete;
  ConfigFile& operator=(const ConfigFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::string config_error(std::string_view text, const std::vector<std::string>& command = {"serve"}) {
  const ConfigFile file(text);
  std::vector<std::string> words = command;
  words.insert(words.end(), {"--config", file.path()});
  return error_of(words);
}

TEST(Config, LiesBetweenEnvironmentAndModelFile) {
  const ConfigFile file(
      "threads = 3\ntop-k = 7\nctx-size = \"8K\"\nverbose = true\n[serve]\nport = 99\ntop-k = 9\n"
      "allowed-origins = [\"a\", \"b\"]\ntimeout = \"5s\"\nkv-memory = \"1GiB\"\n[\"bench decode\"]\nbatch = "
      "4\n");
  auto line = parse({"serve", "--config", file.path(), "--port", "77"}, {{"MLXCEL_CTX_SIZE", "100"}});
  ASSERT_TRUE(line.ok()) << line.error().to_string();
  const Settings& s = line->settings;
  EXPECT_EQ(s.integer("port"), 77);       // the flag
  EXPECT_EQ(s.integer("ctx-size"), 100);  // the environment
  EXPECT_EQ(s.integer("threads"), 3);     // the file, for all commands
  EXPECT_EQ(s.integer("top-k"), 9);       // its table of the command beats its top
  EXPECT_EQ(s.list("allowed-origins"), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(s.number("timeout"), 5.0);
  EXPECT_TRUE(s.flag("verbose"));
  EXPECT_TRUE(s.is_given("threads"));
  EXPECT_EQ(s.find("top-k")->source, file.path() + ":7");
  Settings settings = s;
  settings.set(*find_option("top-k"),
               Setting{SettingValue(int64_t{1}), Origin::kModelFile, "generation_config.json"});
  EXPECT_EQ(settings.integer("top-k"), 9);
  auto bench = parse({"bench", "decode"}, {{"MLXCEL_CONFIG", file.path()}});
  ASSERT_TRUE(bench.ok()) << bench.error().to_string();
  EXPECT_EQ(bench->settings.integer("batch"), 4);
}

// Each option that can be in the file, by its own type: read, and refused when it is of another type.
TEST(Config, EveryOptionCanBeSet) {
  for (const OptionRow& row : option_table()) {
    if (row.environment_only || row.secret || row.name == "help" || row.name == "config" ||
        row.name == "print-config")
      continue;
    std::string value = "\"x\"", wrong = "true";
    if (row.type == OptionType::kBoolean) value = "true", wrong = "3";
    if (row.type == OptionType::kInteger || row.type == OptionType::kCount) value = "2";
    if (row.type == OptionType::kNumber) value = "1.0";
    if (row.type == OptionType::kSize || row.type == OptionType::kSizeOrPercent)
      value = "\"1GB\"", wrong = "1000";
    if (row.type == OptionType::kDuration) value = "\"2s\"", wrong = "2";
    if (row.type == OptionType::kChoice) value = fmt::format("\"{}\"", split_words(row.choices)[0]);
    for (const CommandRow& command : command_table()) {
      if (!belongs_to(row, command.command)) continue;
      std::vector<std::string> words;
      for (const std::string_view word : split_words(command.name)) words.emplace_back(word);
      const ConfigFile file(fmt::format("[\"{}\"]\n{} = {}\n", command.name, row.name, value));
      std::vector<std::string> with_file = words;
      with_file.insert(with_file.end(), {"--config", file.path()});
      auto line = parse(with_file);
      ASSERT_TRUE(line.ok()) << line.error().to_string();
      EXPECT_EQ(line->settings.find(row.name)->origin, Origin::kConfigFile) << row.name;
      EXPECT_TRUE(contains(config_error(fmt::format("{} = {}\n", row.name, wrong), words), ":1 ("))
          << row.name;
      break;
    }
  }
}

TEST(Config, MistakesAreNamedWithTheirLine) {
  EXPECT_TRUE(contains(config_error("\n[serve]\nprot = 1\n"), ".toml:3"));
  EXPECT_TRUE(contains(config_error("[serve]\nprot = 1\n"), "did you mean 'port'?"));
  EXPECT_TRUE(contains(config_error("[sevre]\nport = 1\n"), "did you mean 'serve'?"));
  EXPECT_TRUE(
      contains(config_error("[run]\nprot = 1\n"), "unknown key"));  // another command's table is read too
  EXPECT_TRUE(contains(config_error("[run]\ntemp = 1000\n"), "from 0 to 100"));
  EXPECT_TRUE(contains(config_error("[list]\nport = 1\n"), "no setting of 'mlxcel list'"));
  EXPECT_TRUE(contains(config_error("port = 1\nport = 2\n"), "no TOML"));
  EXPECT_TRUE(contains(config_error("port = [1]\n"), "a number"));
  EXPECT_TRUE(contains(config_error("help = true\n"), "unknown key"));
  const std::string secret = config_error("api-key = \"sesame\"\n");
  EXPECT_TRUE(contains(secret, "api-key-file")) << secret;
  EXPECT_FALSE(contains(secret, "sesame"));
  EXPECT_TRUE(contains(error_of({"serve", "--config", "/no/such/file.toml"}), "/no/such/file.toml"));
}

TEST(CommandLine, TheStrongerOfTwoExclusiveSettingsStays) {
  const ConfigFile file("chat-template = \"from the file\"\n");
  auto line = parse({"generate", "--config", file.path(), "--chat-template-file", "x"});
  ASSERT_TRUE(line.ok());
  EXPECT_EQ(line->settings.text("chat-template"), std::nullopt);
  line = parse({"generate", "--raw"}, {{"MLXCEL_SYSTEM", "you are"}});
  ASSERT_TRUE(line.ok());
  EXPECT_EQ(line->settings.text("system"), std::nullopt);
}

TEST(Environment, MisspeltVariablesAreNoticed) {
  const std::vector<std::string> names = {"HOME", "MLXCEL_TEMPP", "MLXCEL_TEMP", "MLXCEL_TEST_SMOLLM2",
                                          "MLXCEL_ZEBRA"};
  const std::vector<std::string> lines = unknown_variables(names);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_TRUE(contains(lines[0], "did you mean MLXCEL_TEMP?")) << lines[0];
  EXPECT_TRUE(contains(lines[1], "MLXCEL_ZEBRA")) << lines[1];
}

TEST(Reference, TheCommittedFileIsFresh) {
  const auto committed = read_file(std::string(MLXCEL_SOURCE_DIR) + "/docs/cli-reference.md");
  ASSERT_TRUE(committed.ok()) << "run `make docs`";
  EXPECT_TRUE(*committed == reference_markdown()) << "docs/cli-reference.md is stale; run `make docs`";
}

TEST(Reference, EveryFlagIsInEveryText) {
  const std::string pages = manual_page(), markdown = reference_markdown(), server = server_manual_page();
  const std::string bash = bash_completion(), zsh = zsh_completion(), fish = fish_completion();
  for (const OptionRow& row : option_table()) {
    if (row.environment_only) {
      EXPECT_TRUE(contains(markdown, fmt::format("`{}`", row.environment))) << row.environment;
      continue;
    }
    std::string hyphens;
    for (const char c : row.name) hyphens += c == '-' ? std::string("\\-") : std::string(1, c);
    EXPECT_TRUE(contains(pages, fmt::format("\\fB\\-\\-{}\\fR", hyphens))) << row.name;
    EXPECT_EQ(contains(server, fmt::format("\\fB\\-\\-{}\\fR", hyphens)), belongs_to(row, Command::kServe))
        << row.name;
    EXPECT_TRUE(contains(markdown, fmt::format("`--{}`", row.name))) << row.name;
    EXPECT_TRUE(contains(bash, fmt::format("--{}", row.name))) << row.name;
    EXPECT_TRUE(contains(zsh, fmt::format("--{}", row.name))) << row.name;
    EXPECT_TRUE(contains(fish, fmt::format("-l {}", row.name))) << row.name;
  }
}

}  // namespace
}  // namespace mlxcel
