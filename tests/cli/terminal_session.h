// The real program, or a shell, in a pseudo-terminal: what a person sees and types.
//
// Owner: a test. Threads: one.
#pragma once

#include <pty.h>

#include "program.h"

namespace mlxcel {

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

}  // namespace mlxcel
