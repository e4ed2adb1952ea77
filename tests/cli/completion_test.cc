// The completion scripts at work in real shells, and the pages that the program prints about itself.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <sstream>

#include "base/file.h"
#include "program.h"
#include "shell.h"

namespace mlxcel {
namespace {

// A home with the program first in PATH under both of its names and one model in the store.
class Shells : public testing::Test {
 protected:
  Shells() {
    for (const char* name : {"bin", "models/own/Tiny", "files"})
      EXPECT_TRUE(make_directories(home_ / name).ok());
    std::filesystem::create_symlink(MLXCEL_PROGRAM, home_ / "bin/mlxcel");
    std::filesystem::create_symlink("mlxcel", home_ / "bin/mlxcel-server");
    std::filesystem::copy_file(fixture("llama") + "/config.json", home_ / "models/own/Tiny/config.json");
    std::filesystem::copy_file(fixture("llama") + "/model.safetensors",
                               home_ / "models/own/Tiny/model.safetensors");
    EXPECT_TRUE(write_file_atomically(home_ / "files/a prompt.txt", "x").ok());
    for (const char* name : {"bash", "zsh", "fish"}) {
      const RunResult script = run_program({"completion", name});
      EXPECT_EQ(script.code, 0);
      EXPECT_TRUE(write_file_atomically(home_ / name, script.out).ok());
    }
  }
  std::string in_home(const std::string& command) const {
    return fmt::format("cd {0}/files && env -i HOME={0} MLXCEL_HOME={0} PATH={0}/bin:/usr/bin:/bin {1}",
                       home_.path(), command);
  }
  static std::set<std::string> lines(const std::string& text) {
    std::set<std::string> out;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) {
      if (!line.empty()) out.insert(line.substr(0, line.find('\t')));
    }
    return out;
  }
  const ScratchFolder home_;
};

class Bash : public Shells {
 protected:
  // The words as bash splits them; the last is being completed.
  std::set<std::string> complete(const std::vector<std::string>& words) const {
    std::string list;
    for (const std::string& word : words) list += " '" + word + "'";
    const std::string script = fmt::format(
        "source {}/bash; complete -p mlxcel mlxcel-server >/dev/null || exit 9\n"
        "COMP_WORDS=({}); COMP_CWORD={}; _mlxcel; printf '%s\\n' \"${{COMPREPLY[@]}}\"\n",
        home_.path(), list, words.size() - 1);
    EXPECT_TRUE(write_file_atomically(home_ / "script", script).ok());
    const ShellResult result = shell(in_home(fmt::format("bash --norc --noprofile {}/script", home_.path())));
    EXPECT_EQ(result.code, 0) << result.output;
    return lines(result.output);
  }
};

using Words = std::set<std::string>;

TEST_F(Bash, CommandsFlagsValuesModelsAndFiles) {
  EXPECT_EQ(complete({"mlxcel", "comp"}), Words{"completion"});
  EXPECT_TRUE(complete({"mlxcel", ""}).contains("serve"));
  EXPECT_TRUE(complete({"mlxcel", "bench", ""}).contains("decode"));
  EXPECT_EQ(complete({"mlxcel", "bench", "decode", "--gen"}), Words{"--gen-tokens"});
  EXPECT_EQ(complete({"mlxcel", "run", "--top-"}),
            (Words{"--top-k", "--top-p", "--top-n-sigma", "--top-nsigma"}));
  EXPECT_EQ(complete({"mlxcel", "chat", "--log-level", ""}),
            (Words{"error", "warning", "info", "debug", "trace"}));
  EXPECT_EQ(complete({"mlxcel", "run", "--log-level", "=", "d"}), Words{"debug"});
  EXPECT_EQ(complete({"mlxcel", "run", "--log-level", "="}),
            (Words{"error", "warning", "info", "debug", "trace"}));
  EXPECT_EQ(complete({"mlxcel", "run", "-m", "ow"}), Words{"own/Tiny"});
  EXPECT_EQ(complete({"mlxcel", "run", "own"}), Words{"own/Tiny"});
  EXPECT_EQ(complete({"mlxcel", "run", "-m", "a"}), Words{"a prompt.txt"});  // no model of this name: files
  EXPECT_EQ(complete({"mlxcel", "generate", "--prompt-file", ""}), Words{"a prompt.txt"});
  EXPECT_EQ(complete({"mlxcel", "completion", ""}), (Words{"bash", "zsh", "fish"}));
  EXPECT_EQ(complete({"mlxcel", "generate", "-p", "a"}), Words{});  // a prompt can be anything
}

TEST_F(Bash, TheServersNameCompletesServe) {
  EXPECT_EQ(complete({"mlxcel-server", "--kv-b"}), Words{"--kv-block-size"});
  EXPECT_EQ(complete({"mlxcel-server", "-m", ""}), Words{"own/Tiny"});
  EXPECT_EQ(complete({"mlxcel-server", "-ctk", "q"}), Words{"q8_0"});
  EXPECT_EQ(complete({"mlxcel", "serve", "--draft-kind", ""}), (Words{"none", "ngram"}));
}

TEST_F(Bash, EveryCommandCompletesItsFlags) {
  for (const char* command :
       {"run", "generate", "serve", "inspect", "tokenize", "template", "score", "list", "pull", "version"}) {
    const Words flags = complete({"mlxcel", command, "--"});
    EXPECT_TRUE(flags.contains("--verbose") && flags.contains("--no-verbose") && flags.contains("--help"))
        << command;
  }
}

class Fish : public Shells {
 protected:
  void SetUp() override {
    if (!is_installed("fish")) GTEST_SKIP() << "not run: fish is absent";
  }
  std::set<std::string> complete(const std::string& line) const {
    EXPECT_TRUE(write_file_atomically(home_ / "script",
                                      fmt::format("source {}/fish\ncomplete -C '{}'\n", home_.path(), line))
                    .ok());
    const ShellResult result = shell(in_home(fmt::format("fish --no-config {}/script", home_.path())));
    EXPECT_EQ(result.code, 0) << result.output;
    return lines(result.output);
  }
};

TEST_F(Fish, CommandsFlagsValuesModelsAndFiles) {
  EXPECT_EQ(complete("mlxcel comp"), Words{"completion"});
  EXPECT_TRUE(complete("mlxcel bench ").contains("decode"));
  EXPECT_EQ(complete("mlxcel bench decode --gen"), Words{"--gen-tokens"});
  EXPECT_EQ(complete("mlxcel run --log-level "), (Words{"error", "warning", "info", "debug", "trace"}));
  EXPECT_EQ(complete("mlxcel run --log-level=d"), Words{"--log-level=debug"});
  EXPECT_TRUE(complete("mlxcel run -m ow").contains("own/Tiny"));
  EXPECT_TRUE(complete("mlxcel generate --prompt-file ").contains("a prompt.txt"));
  EXPECT_EQ(complete("mlxcel completion "), (Words{"bash", "zsh", "fish"}));
  EXPECT_EQ(complete("mlxcel-server -ctk q"), Words{"q8_0"});
  EXPECT_EQ(complete("mlxcel-server --kv-b"), Words{"--kv-block-size"});
}

// Runs an interactive zsh in a pseudo-terminal of its own and writes down what its completion offers.
constexpr const char* kZshCapture = R"zsh(
zmodload zsh/zpty
zpty z zsh -f -i
zpty -w z "source $1/setup"
zpty -r z line '*ready*'
zpty -w -n z "$2"$'\t'
while zpty -r z line; do :; done
)zsh";
constexpr const char* kZshSetup = R"zsh(
PROMPT= RPROMPT=
autoload -U compinit
compinit -u -D
bindkey '^I' complete-word
zstyle ':completion:*' insert-tab false
leave() { exit }
comppostfuncs=(leave)
compadd() {
  if [[ ${@[1,(i)(-|--)]} == *-(O|A|D)\ * ]]; then
    builtin compadd "$@"
    return
  fi
  local -a hits
  builtin compadd -A hits "$@"
  print -rl -- $hits >> $HOME/hits
}
source $HOME/zsh
print rea''dy
)zsh";

class Zsh : public Shells {
 protected:
  void SetUp() override {
    if (!is_installed("zsh")) GTEST_SKIP() << "not run: zsh is absent";
    ASSERT_TRUE(write_file_atomically(home_ / "capture", kZshCapture).ok());
    ASSERT_TRUE(write_file_atomically(home_ / "setup", kZshSetup).ok());
  }
  std::set<std::string> complete(const std::string& line) const {
    ::unlink((home_ / "hits").c_str());
    const ShellResult result =
        shell(in_home(fmt::format("timeout 60 zsh -f {0}/capture {0} '{1}'", home_.path(), line)));
    EXPECT_EQ(result.code, 0) << result.output;
    auto hits = read_file(home_ / "hits");
    return hits.ok() ? lines(*hits) : std::set<std::string>{};
  }
};

TEST_F(Zsh, CommandsFlagsValuesModelsAndFiles) {
  EXPECT_TRUE(complete("mlxcel comp").contains("completion"));
  EXPECT_TRUE(complete("mlxcel bench ").contains("decode"));
  EXPECT_TRUE(complete("mlxcel bench decode --gen").contains("--gen-tokens"));
  EXPECT_EQ(complete("mlxcel run --log-level "), (Words{"error", "warning", "info", "debug", "trace"}));
  EXPECT_EQ(complete("mlxcel run --log-level=d"), Words{"debug"});
  EXPECT_TRUE(complete("mlxcel run -m ow").contains("own/Tiny"));
  EXPECT_TRUE(complete("mlxcel run own").contains("own/Tiny"));
  EXPECT_EQ(complete("mlxcel generate --prompt-file a").size(), 1u);  // a\ prompt.txt, as the shell quotes it
  EXPECT_EQ(complete("mlxcel generate --prompt-file zebra"), Words{});
  EXPECT_EQ(complete("mlxcel completion "), (Words{"bash", "zsh", "fish"}));
  EXPECT_EQ(complete("mlxcel-server -ctk q"), Words{"q8_0"});
}

TEST(Completion, AnUnknownShellIsAUsageError) {
  EXPECT_EQ(run_program({"completion"}).code, 2);
  const RunResult result = run_program({"completion", "bush"});
  EXPECT_EQ(result.code, 2);
  EXPECT_TRUE(contains(result.err, "did you mean 'bash'?")) << result.err;
}

TEST(Manual, PagesRenderWithoutAWarning) {
  if (!is_installed("groff")) GTEST_SKIP() << "not run: groff is absent";
  const ScratchFolder folder;
  for (const char* page : {"mlxcel", "mlxcel-server"}) {
    const RunResult roff = run_program({"man", page});
    ASSERT_EQ(roff.code, 0) << roff.err;
    ASSERT_TRUE(write_file_atomically(folder / "page", roff.out).ok());
    EXPECT_EQ(shell("groff -man -ww -z -Tutf8 " + (folder / "page")).output, "");
    const ShellResult text = shell("groff -man -Tascii -P-cbou " + (folder / "page"));
    EXPECT_EQ(text.code, 0);
    for (const char* part : {"NAME", "SYNOPSIS", "--ctx-size", "MLXCEL_CTX_SIZE", "EXIT STATUS", "NO_COLOR"})
      EXPECT_TRUE(contains(text.output, part)) << page << ": " << part;
  }
  EXPECT_TRUE(contains(run_program({"man", "reference"}).out, "| `-m`, `-hf`, `--model`"));
  EXPECT_EQ(run_program({"man", "woman"}).code, 2);
}

}  // namespace
}  // namespace mlxcel
