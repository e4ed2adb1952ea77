// The real server with the tiny model as a child process, and a plain HTTP client for it.
//
// Owner: the test. Threads: the client functions may be called from any; the process ends with the object.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace mlxcel::e2e {

struct Reply {
  int status = 0;
  std::string body;  // chunks joined
};

class ServerProcess {
 public:
  // environment: NAME=VALUE, besides the test's own. stderr_path: where its log goes; empty: to the test's
  // own.
  explicit ServerProcess(std::vector<std::string> flags, const std::vector<std::string>& environment = {},
                         const std::string& stderr_path = {}) {
    std::vector<std::string> words = {std::string(MLXCEL_BINARY_DIR) + "/bin/mlxcel-server", "-m",
                                      std::string(MLXCEL_SOURCE_DIR) + "/assets/mlxcel-tiny-chat-4bit",
                                      "--port", "0"};
    words.insert(words.end(), flags.begin(), flags.end());
    int out[2];
    EXPECT_EQ(::pipe(out), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(out[1], STDOUT_FILENO);
      if (!stderr_path.empty())
        ::dup2(::open(stderr_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDERR_FILENO);
      ::close(out[0]);
      ::close(out[1]);
      for (const std::string& one : environment) {
        const size_t equals = one.find('=');
        ::setenv(one.substr(0, equals).c_str(), one.substr(equals + 1).c_str(), 1);
      }
      std::vector<char*> argv;
      for (std::string& w : words) argv.push_back(w.data());
      argv.push_back(nullptr);
      ::execv(argv[0], argv.data());
      ::_exit(127);
    }
    ::close(out[1]);
    std::string line;
    for (char c = 0; ::read(out[0], &c, 1) == 1 && c != '\n';) line.push_back(c);
    ::close(out[0]);
    const size_t colon = line.rfind(':');
    if (colon != std::string::npos)
      port_ = static_cast<uint16_t>(std::strtol(line.c_str() + colon + 1, nullptr, 10));
    for (int i = 0; i < 600 && port_ != 0 && !has_ended() && get("/health").status != 200; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  }
  ~ServerProcess() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
  }
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  int connect() const {
    const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in a{};
    a.sin_family = AF_INET;
    a.sin_port = htons(port_);
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    sockaddr generic{};
    std::memcpy(&generic, &a, sizeof generic);
    (void)::connect(fd, &generic, sizeof a);
    return fd;
  }
  static void send(int fd, std::string_view text) {
    (void)::send(fd, text.data(), text.size(), MSG_NOSIGNAL);
  }
  static std::string request(std::string_view method, std::string_view path, std::string_view body,
                             std::string_view headers = "") {
    return fmt::format("{} {} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{}Content-Length: {}\r\n\r\n{}",
                       method, path, headers, body.size(), body);
  }
  Reply call(const std::string& text) const {
    const int fd = connect();
    send(fd, text);
    std::string all;
    char buffer[8192];
    for (ssize_t n = 0; (n = ::recv(fd, buffer, sizeof buffer, 0)) > 0;)
      all.append(buffer, static_cast<size_t>(n));
    ::close(fd);
    return parse(all);
  }
  Reply get(std::string_view path) const { return call(request("GET", path, "")); }
  Reply post(std::string_view path, std::string_view body, std::string_view headers = "") const {
    return call(request("POST", path, body, headers));
  }
  bool has_ended() {
    if (pid_ > 0 && ::waitpid(pid_, &status_, WNOHANG) == pid_) pid_ = -1;
    return pid_ < 0;
  }
  // Exit status after SIGTERM, or the one it ended with before.
  int terminate() {
    if (!has_ended()) {
      ::kill(pid_, SIGTERM);
      ::waitpid(pid_, &status_, 0);
      pid_ = -1;
    }
    return WIFEXITED(status_) ? WEXITSTATUS(status_) : 1000 + WTERMSIG(status_);
  }
  double metric(const std::string& name) const {
    const std::string text = "\n" + get("/metrics").body;
    const size_t at = text.find("\n" + name + " ");
    return at == std::string::npos ? -1.0 : std::strtod(text.c_str() + at + name.size() + 2, nullptr);
  }

 private:
  static Reply parse(const std::string& all) {
    Reply r;
    const size_t head = all.find("\r\n\r\n");
    if (head == std::string::npos) return r;
    r.status = static_cast<int>(std::strtol(all.c_str() + 9, nullptr, 10));
    std::string_view rest = std::string_view(all).substr(head + 4);
    if (all.find("Transfer-Encoding: chunked") > head) {
      r.body = std::string(rest);
      return r;
    }
    while (!rest.empty()) {
      const size_t size = static_cast<size_t>(std::strtol(rest.data(), nullptr, 16));
      const size_t line = rest.find("\r\n");
      if (size == 0 || line == std::string_view::npos) break;
      r.body += rest.substr(line + 2, size);
      rest.remove_prefix(std::min(rest.size(), line + 2 + size + 2));
    }
    return r;
  }
  pid_t pid_ = -1;
  int status_ = 0;
  uint16_t port_ = 0;
};

}  // namespace mlxcel::e2e
