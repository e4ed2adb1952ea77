// A tiny HTTP/1.1 server on 127.0.0.1 for tests: one request per connection, answers from a function. It can
// cut an answer short, which is what real networks do.
//
// Owner: the test. Threads: serves on its own; the handler runs there, one request at a time.
#pragma once

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace mlxcel {

struct TestRequest {
  std::string path;                            // with the query
  std::map<std::string, std::string> headers;  // names in lower case
};
struct TestResponse {
  int status = 200;
  std::map<std::string, std::string> headers;
  std::string body;
  size_t cut_after = std::string::npos;  // bytes of the body really sent
};

class TestServer {
 public:
  using Handler = std::function<TestResponse(const TestRequest&)>;

  explicit TestServer(Handler handler) : handler_(std::move(handler)) {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    const bool up = listener_ >= 0 && ::bind(listener_, generic, size) == 0 && ::listen(listener_, 16) == 0 &&
                    ::getsockname(listener_, generic, &size) == 0;
    if (!up) throw std::runtime_error("test server cannot listen");
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { serve(); });
  }
  ~TestServer() {
    stopping_ = true;
    ::shutdown(listener_, SHUT_RDWR);
    ::close(listener_);
    thread_.join();
  }
  TestServer(const TestServer&) = delete;
  TestServer& operator=(const TestServer&) = delete;

  std::string url(const std::string& host = "127.0.0.1") const {
    return fmt::format("http://{}:{}", host, port_);
  }
  std::vector<TestRequest> requests() const {
    const std::lock_guard lock(mutex_);
    return requests_;
  }

 private:
  void serve() {
    while (!stopping_) {
      const int connection = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (connection < 0) continue;
      answer(connection);
      ::close(connection);
    }
  }
  void answer(int connection) {
    std::string text;
    char buffer[4096];
    while (text.find("\r\n\r\n") == std::string::npos) {
      const ssize_t got = ::recv(connection, buffer, sizeof buffer, 0);
      if (got <= 0) return;
      text.append(buffer, static_cast<size_t>(got));
    }
    TestRequest request;
    request.path = text.substr(4, text.find(' ', 4) - 4);
    for (size_t begin = text.find("\r\n") + 2; text.compare(begin, 2, "\r\n") != 0;) {
      const size_t end = text.find("\r\n", begin), colon = text.find(':', begin);
      std::string name = text.substr(begin, colon - begin);
      for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      request.headers[name] = text.substr(colon + 2, end - colon - 2);
      begin = end + 2;
    }
    {
      const std::lock_guard lock(mutex_);
      requests_.push_back(request);
    }
    const TestResponse response = handler_(request);
    std::string out = fmt::format("HTTP/1.1 {} Status\r\nConnection: close\r\nContent-Length: {}\r\n",
                                  response.status, response.body.size());
    for (const auto& [name, value] : response.headers) out += fmt::format("{}: {}\r\n", name, value);
    out += "\r\n" + response.body.substr(0, response.cut_after);
    for (size_t sent = 0; sent < out.size();) {
      const ssize_t count = ::send(connection, out.data() + sent, out.size() - sent, MSG_NOSIGNAL);
      if (count <= 0) return;
      sent += static_cast<size_t>(count);
    }
  }

  Handler handler_;
  int listener_ = -1;
  uint16_t port_ = 0;
  std::atomic<bool> stopping_{false};
  mutable std::mutex mutex_;
  std::vector<TestRequest> requests_;
  std::thread thread_;
};

}  // namespace mlxcel
