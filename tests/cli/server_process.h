// A server of the real program in the background, with the tiny model, on a free port of this machine.
//
// Owner: a test. Threads: one.
#pragma once

#include "base/file.h"
#include "program.h"

namespace mlxcel {

class ServerInBackground {
 public:
  // `words` follow "serve"; the environment is that of run_program() in `home`.
  ServerInBackground(const ScratchFolder& home, std::vector<std::string> words,
                     const std::map<std::string, std::string>& environment = {}) {
    words.insert(words.begin(), "serve");
    int out[2];
    if (::pipe2(out, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
    const std::vector<std::string> variables = clean_environment(home, environment);
    child_ = ::fork();
    if (child_ == 0) {
      const int log = ::open((home / "server.log").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
      ::dup2(log, STDERR_FILENO);
      ::dup2(out[1], STDOUT_FILENO);
      execute(words, variables);
    }
    ::close(out[1]);
    for (char c = 0; ::read(out[0], &c, 1) == 1 && c != '\n';) line_ += c;
    ::close(out[0]);
  }
  ~ServerInBackground() {
    if (child_ > 0) {
      ::kill(child_, SIGKILL);
      ::waitpid(child_, nullptr, 0);
    }
  }
  ServerInBackground(const ServerInBackground&) = delete;
  ServerInBackground& operator=(const ServerInBackground&) = delete;

  // "http://127.0.0.1:PORT"; empty when it did not start.
  std::string address() const { return line_.starts_with("listening on ") ? line_.substr(13) : ""; }
  pid_t pid() const { return child_; }
  int stop(int signal = SIGTERM) {
    ::kill(child_, signal);
    return wait_for_exit();
  }
  int wait_for_exit() {
    int status = 0;
    const double deadline = monotonic_seconds() + kPatienceSeconds;
    while (::waitpid(child_, &status, WNOHANG) == 0) {
      if (monotonic_seconds() > deadline) ::kill(child_, SIGKILL);
      ::usleep(1000);
    }
    child_ = -1;
    return exit_code_of_status(status);
  }

 private:
  pid_t child_ = -1;
  std::string line_;
};

}  // namespace mlxcel
