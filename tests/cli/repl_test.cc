// The conversation in a terminal, through a pseudo-terminal.
#include <gtest/gtest.h>
#include <pty.h>

#include "base/file.h"
#include "program.h"

namespace mlxcel {
namespace {

class TerminalSession {
 public:
  explicit TerminalSession(const std::vector<std::string>& arguments) {
    const std::vector<std::string> environment = clean_environment(home_, {});
    winsize size{};
    size.ws_row = 40;
    size.ws_col = 120;
    child_ = ::forkpty(&terminal_, nullptr, nullptr, &size);
    if (child_ == 0) execute(arguments, environment);
  }
  ~TerminalSession() {
    if (child_ > 0) {
      ::kill(child_, SIGKILL);
      ::waitpid(child_, nullptr, 0);
    }
    ::close(terminal_);
  }
  TerminalSession(const TerminalSession&) = delete;
  TerminalSession& operator=(const TerminalSession&) = delete;

  void type(const std::string& text) {
    ASSERT_EQ(::write(terminal_, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  // Reads until `text` was seen after the last match; everything up to it is returned.
  std::string wait_for(const std::string& text) {
    const double deadline = monotonic_seconds() + kPatienceSeconds;
    for (;;) {
      if (const size_t at = unread_.find(text); at != std::string::npos) {
        const std::string seen = unread_.substr(0, at + text.size());
        unread_.erase(0, at + text.size());
        return seen;
      }
      if (monotonic_seconds() > deadline || !read_more()) {
        ADD_FAILURE() << "'" << text << "' never came; seen: " << unread_;
        return "";
      }
    }
  }
  void wait_for_prompt() { wait_for(">>> "); }
  int wait_for_exit() {
    while (read_more()) {
    }
    int status = 0;
    const double deadline = monotonic_seconds() + kPatienceSeconds;
    while (::waitpid(child_, &status, WNOHANG) == 0) {
      if (monotonic_seconds() > deadline) ::kill(child_, SIGKILL);
      ::usleep(1000);
    }
    child_ = -1;
    return exit_code_of_status(status);
  }
  const ScratchFolder& home() const { return home_; }

 private:
  bool read_more() {
    pollfd file{terminal_, POLLIN, 0};
    if (::poll(&file, 1, static_cast<int>(kPatienceSeconds * 1000)) <= 0) return false;
    char buffer[4096];
    const ssize_t got = ::read(terminal_, buffer, sizeof buffer);  // an error once the program is gone
    if (got <= 0) return false;
    unread_.append(buffer, static_cast<size_t>(got));
    return true;
  }

  ScratchFolder home_;
  int terminal_ = -1;
  pid_t child_ = -1;
  std::string unread_;
};

TEST(Repl, AnswersRemembersAndLeaves) {
  TerminalSession repl({"run", "-m", tiny_chat(), "-n", "40"});
  repl.wait_for_prompt();
  repl.type("What is the capital of France?\n");
  repl.wait_for("The capital of France is Paris.");
  repl.wait_for_prompt();
  repl.type("/set verbose on\n");
  repl.wait_for_prompt();
  repl.type("And of Italy?\n");
  repl.wait_for("kept from before");  // the rows of the first turn were not computed again
  repl.wait_for_prompt();
  repl.type("/show messages\n");
  const std::string messages = repl.wait_for("And of Italy?");
  EXPECT_TRUE(contains(messages, "Paris"));
  repl.wait_for_prompt();
  const std::string file = repl.home() / "chat.json";
  repl.type("/save " + file + "\n");
  repl.wait_for("4 messages");
  repl.wait_for_prompt();
  EXPECT_EQ(parse_json_file(file)->as_array().size(), 4u);
  repl.type("/clear\n");
  repl.wait_for("forgotten");
  repl.wait_for_prompt();
  repl.type("/load " + file + "\n");
  repl.wait_for("4 messages");
  repl.wait_for_prompt();
  repl.type("\x04");
  EXPECT_EQ(repl.wait_for_exit(), 0);
  EXPECT_TRUE(contains(*read_file(repl.home() / ".cache/mlxcel/history"), "Italy"));
}

TEST(Repl, CommandsAndMistakes) {
  TerminalSession repl({"run", tiny_chat()});
  repl.wait_for_prompt();
  repl.type("/help\n");
  repl.wait_for("Ctrl-C");
  repl.wait_for_prompt();
  repl.type("/hlep\n");
  repl.wait_for("did you mean /help?");
  repl.wait_for_prompt();
  repl.type("/set temp 9999\n");
  repl.wait_for("from 0 to 100");
  repl.wait_for_prompt();
  repl.type("/set threads 4\n");
  repl.wait_for("/set knows");
  repl.wait_for_prompt();
  repl.type("/show\n");
  repl.wait_for("built-in");
  repl.wait_for_prompt();
  repl.type("\"\"\"What is the capital\n");
  repl.wait_for("... ");
  repl.type("of France?\"\"\"\n");
  repl.wait_for_prompt();
  repl.type("/bye\n");
  EXPECT_EQ(repl.wait_for_exit(), 0);
}

TEST(Repl, CtrlCStopsTheAnswerAndKeepsTheSession) {
  TerminalSession repl({"run", "-m", tiny_chat(), "--ignore-eos", "-n", "1500", "--backend", "reference"});
  repl.wait_for_prompt();
  repl.type("What is the capital of France?\n");
  repl.wait_for("The capital");
  repl.type("\x03");
  repl.wait_for_prompt();
  repl.type("/stats\n");
  repl.wait_for("cancelled");
  repl.wait_for_prompt();
  repl.type("half a line\x03");
  repl.wait_for("Ctrl-D");
  repl.wait_for_prompt();
  repl.type("/show messages\n");  // nothing is left of the half line
  repl.wait_for("capital");
  repl.wait_for_prompt();
  repl.type("\x04");
  EXPECT_EQ(repl.wait_for_exit(), 0);
}

}  // namespace
}  // namespace mlxcel
