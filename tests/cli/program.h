// Runs the real program in a clean environment and collects what it says. Inputs and outputs are pipes, so
// nothing looks like a terminal; repl_test.cc has the terminal.
//
// Owner: a test. Threads: one.
#pragma once

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/environment.h"
#include "base/json.h"

namespace mlxcel {

inline std::string source_path(const std::string& relative) {
  return std::string(MLXCEL_SOURCE_DIR) + "/" + relative;
}
inline std::string fixture(const std::string& name) { return source_path("tests/data/models/" + name); }
inline std::string tiny_chat() { return source_path("assets/mlxcel-tiny-chat-4bit"); }

// A folder of this test's own, gone afterwards; it is HOME as well.
class ScratchFolder {
 public:
  ScratchFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "mlxcel-cli-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("no scratch folder");
    path_ = name;
  }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

struct RunResult {
  int code = -1;  // 128 + signal when killed
  std::string out, err;
  JsonValue json() const {
    auto value = parse_json(out, "the program's output");
    EXPECT_TRUE(value.ok()) << out << err;
    return value.ok() ? *value : JsonValue();
  }
};

struct RunOptions {
  std::string input = {};
  std::map<std::string, std::string> environment = {};
  bool interrupt_at_first_output = false;  // SIGINT once something came on stdout
};

inline std::vector<std::string> clean_environment(const ScratchFolder& home,
                                                  const std::map<std::string, std::string>& more) {
  std::map<std::string, std::string> variables = {
      {"HOME", home.path()}, {"PATH", "/usr/bin:/bin"}, {"LC_ALL", "C.UTF-8"}, {"TERM", "xterm"}};
  for (const auto& [name, value] : more) variables[name] = value;
  std::vector<std::string> out;
  for (const auto& [name, value] : variables) out.push_back(name + "=" + value);
  return out;
}

[[noreturn]] inline void execute(const std::vector<std::string>& arguments,
                                 const std::vector<std::string>& environment) {
  std::vector<std::string> words = {MLXCEL_PROGRAM};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv, envp;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  for (const std::string& variable : environment) envp.push_back(const_cast<char*>(variable.c_str()));
  argv.push_back(nullptr);
  envp.push_back(nullptr);
  ::execve(MLXCEL_PROGRAM, argv.data(), envp.data());
  ::_exit(127);
}

inline int exit_code_of_status(int status) {
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

// Ends the process that hangs, so that a broken program is a failed test and not a stuck one.
constexpr double kPatienceSeconds = 120.0;

inline RunResult run_program(const std::vector<std::string>& arguments, const RunOptions& options = {}) {
  const ScratchFolder home;
  int in[2], out[2], err[2];
  if (::pipe2(in, O_CLOEXEC) != 0 || ::pipe2(out, O_CLOEXEC) != 0 || ::pipe2(err, O_CLOEXEC) != 0)
    throw std::runtime_error("no pipe");
  const std::vector<std::string> environment = clean_environment(home, options.environment);
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(in[0], STDIN_FILENO);
    ::dup2(out[1], STDOUT_FILENO);
    ::dup2(err[1], STDERR_FILENO);
    execute(arguments, environment);
  }
  ::close(in[0]);
  ::close(out[1]);
  ::close(err[1]);
  RunResult result;
  size_t written = 0;
  bool interrupted = false, is_in_open = true;
  ::fcntl(in[1], F_SETFL, O_NONBLOCK);
  ::signal(SIGPIPE, SIG_IGN);
  pollfd files[3] = {{out[0], POLLIN, 0}, {err[0], POLLIN, 0}, {in[1], POLLOUT, 0}};
  const double deadline = monotonic_seconds() + kPatienceSeconds;
  while (files[0].fd >= 0 || files[1].fd >= 0) {
    if (monotonic_seconds() > deadline) ::kill(child, SIGKILL);
    ::poll(files, 3, 1000);
    for (int i = 0; i < 2; ++i) {
      if (files[i].fd < 0 || files[i].revents == 0) continue;
      char buffer[65536];
      const ssize_t got = ::read(files[i].fd, buffer, sizeof buffer);
      if (got <= 0) {
        ::close(files[i].fd);
        files[i].fd = -1;
      } else {
        (i == 0 ? result.out : result.err).append(buffer, static_cast<size_t>(got));
      }
    }
    if (is_in_open && (files[2].revents != 0 || written == options.input.size())) {
      const ssize_t sent = ::write(in[1], options.input.data() + written, options.input.size() - written);
      if (sent > 0) written += static_cast<size_t>(sent);
      if (written == options.input.size() || (files[2].revents & POLLERR) != 0) {
        ::close(in[1]);
        files[2].fd = -1;
        is_in_open = false;
      }
    }
    if (options.interrupt_at_first_output && !interrupted && !result.out.empty()) {
      ::kill(child, SIGINT);
      interrupted = true;
    }
  }
  if (is_in_open) ::close(in[1]);
  int status = 0;
  ::waitpid(child, &status, 0);
  result.code = exit_code_of_status(status);
  return result;
}

inline bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

}  // namespace mlxcel
