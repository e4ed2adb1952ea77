// The HTTP server against raw sockets: framing, limits, streams, disconnects. No client library stands
// between.
#include "serve/http/http.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>

namespace mlxcel {
namespace {

class Client {
 public:
  explicit Client(uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in a{};
    a.sin_family = AF_INET;
    a.sin_port = htons(port);
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    sockaddr generic{};
    std::memcpy(&generic, &a, sizeof generic);
    EXPECT_EQ(::connect(fd_, &generic, sizeof a), 0);
  }
  ~Client() { close(); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  void send(std::string_view text) {
    EXPECT_EQ(::send(fd_, text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
  }
  // Reads until `mark` has been seen, the peer closed, or five seconds passed.
  std::string read_until(std::string_view mark) {
    while (text_.find(mark) == std::string::npos) {
      pollfd p{fd_, POLLIN, 0};
      if (::poll(&p, 1, 5000) <= 0) break;
      char buffer[4096];
      const ssize_t n = ::recv(fd_, buffer, sizeof buffer, 0);
      if (n <= 0) break;
      text_.append(buffer, static_cast<size_t>(n));
    }
    return std::exchange(text_, {});
  }
  std::string read_all() { return read_until("\x01never\x01"); }

 private:
  int fd_;
  std::string text_;
};

class HttpServerTest : public ::testing::Test {
 protected:
  void start(HttpLimits limits = {}) {
    HttpServerOptions options;
    options.port = 0;
    options.limits = limits;
    auto server = HttpServer::bind(
        options,
        [](const HttpRequest& r) -> std::optional<HttpResponse> {
          if (r.path != "/secret") return std::nullopt;
          HttpResponse refusal;
          refusal.status = 401;
          refusal.body = "no";
          return refusal;
        },
        [this](std::shared_ptr<const HttpRequest> r, std::shared_ptr<ResponseWriter> w) { handle(r, w); });
    ASSERT_TRUE(server.ok()) << server.error().one_line();
    server_ = std::move(*server);
    thread_ = std::thread([this] { server_->run(); });
  }
  void TearDown() override {
    if (server_) server_->stop();
    if (thread_.joinable()) thread_.join();
    for (std::thread& t : workers_) t.join();
  }
  void handle(const std::shared_ptr<const HttpRequest>& r, const std::shared_ptr<ResponseWriter>& w) {
    if (r->path == "/echo") {
      HttpResponse response;
      response.content_type = "text/plain";
      response.body = r->method + "|" + r->query_value("q").value_or("-") + "|" + r->body;
      w->send(response);
    } else if (r->path == "/stream") {
      w->begin_stream(HttpResponse{200, "text/event-stream", {}, {}}, 0.0);
      workers_.emplace_back([w] {
        for (int i = 0; i < 3; ++i) w->write("data: " + std::to_string(i) + "\n\n");
        w->end_stream();
      });
    } else if (r->path == "/silent") {
      w->begin_stream(HttpResponse{200, "text/event-stream", {}, {}}, 0.05);
      w->on_disconnect([this] {
        const std::lock_guard lock(mutex_);
        disconnected_ = true;
        changed_.notify_all();
      });
      keep_.push_back(w);
    } else if (r->path == "/flood") {
      w->begin_stream(HttpResponse{200, "text/event-stream", {}, {}}, 0.0);
      workers_.emplace_back([this, w] {
        while (w->write(std::string(64 << 10, 'x'))) std::this_thread::yield();
        const std::lock_guard lock(mutex_);
        disconnected_ = true;
        changed_.notify_all();
      });
    }
  }
  bool wait_for_disconnect() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(10), [this] { return disconnected_; });
  }

  std::unique_ptr<HttpServer> server_;
  std::thread thread_;
  std::vector<std::thread> workers_;
  std::vector<std::shared_ptr<ResponseWriter>> keep_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool disconnected_ = false;
};

TEST_F(HttpServerTest, KeepAliveAndPipelining) {
  start();
  Client c(server_->port());
  c.send(
      "POST /echo?q=a%20b HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhelloGET /echo HTTP/1.1\r\nHost: "
      "x\r\nConnection: close\r\n\r\n");
  const std::string text = c.read_all();
  EXPECT_NE(text.find("POST|a b|hello"), std::string::npos) << text;
  EXPECT_NE(text.find("GET|-|"), std::string::npos) << text;
  EXPECT_NE(text.find("Content-Length: 14"), std::string::npos) << text;
}

TEST_F(HttpServerTest, ChunkedRequestBodies) {
  start();
  Client c(server_->port());
  c.send(
      "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nConnection: "
      "close\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n");
  EXPECT_NE(c.read_all().find("POST|-|abcde"), std::string::npos);
}

TEST_F(HttpServerTest, StreamsAreChunked) {
  start();
  Client c(server_->port());
  c.send("GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
  const std::string text = c.read_until("0\r\n\r\n");
  EXPECT_NE(text.find("Transfer-Encoding: chunked"), std::string::npos);
  for (const char* event : {"data: 0\n\n", "data: 1\n\n", "data: 2\n\n"})
    EXPECT_NE(text.find(event), std::string::npos) << text;
  c.send("GET /echo HTTP/1.1\r\nHost: x\r\n\r\n");  // the connection lives on
  EXPECT_NE(c.read_until("GET|-|").find("200 OK"), std::string::npos);
}

TEST_F(HttpServerTest, SilentStreamsArePingedAndDisconnectsAreSeen) {
  start();
  Client c(server_->port());
  c.send("GET /silent HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_NE(c.read_until(": ping").find(": ping"), std::string::npos);
  c.close();
  EXPECT_TRUE(wait_for_disconnect());
}

TEST_F(HttpServerTest, ASlowReaderIsDropped) {
  HttpLimits limits;
  limits.max_queued_bytes = 256 << 10;
  start(limits);
  Client c(server_->port());
  c.send("GET /flood HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_TRUE(wait_for_disconnect());  // without reading a byte
}

TEST_F(HttpServerTest, LimitsAnswerBeforeTheBodyIsRead) {
  HttpLimits limits;
  limits.max_body_bytes = 1000;
  limits.max_header_bytes = 2000;
  start(limits);
  {
    Client c(server_->port());
    c.send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1001\r\n\r\n");
    EXPECT_NE(c.read_all().find("413"), std::string::npos);
  }
  {
    Client c(server_->port());
    c.send("POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n800\r\n" +
           std::string(0x800, 'a'));
    EXPECT_NE(c.read_all().find("413"), std::string::npos);
  }
  {
    Client c(server_->port());
    c.send("GET /echo HTTP/1.1\r\nHost: x\r\nX-Long: " + std::string(3000, 'a') + "\r\n\r\n");
    EXPECT_NE(c.read_all().find("431"), std::string::npos);
  }
  {
    Client c(server_->port());
    c.send("POST /secret HTTP/1.1\r\nHost: x\r\nContent-Length: 900\r\n\r\n");
    EXPECT_NE(c.read_all().find("401"), std::string::npos);
  }
}

TEST_F(HttpServerTest, MalformedRequestsAreAnsweredOrClosed) {
  start();
  for (const char* bad :
       {"garbage\r\n\r\n", "GET\r\n\r\n", "GET / HTTP/9.9\r\n\r\n",
        "POST /echo HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "\r\n\r\n\r\n"}) {
    Client c(server_->port());
    c.send(bad);
    const std::string text = c.read_all();
    EXPECT_TRUE(text.empty() || text.find(" 400 ") != std::string::npos) << bad << " -> " << text;
  }
  Client c(server_->port());
  c.send("GET /echo HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_NE(c.read_until("GET|-|").find("200 OK"), std::string::npos);
}

TEST_F(HttpServerTest, SlowHeadersAreClosed) {
  HttpLimits limits;
  limits.header_timeout_seconds = 0.2;
  start(limits);
  Client c(server_->port());
  c.send("GET /echo HT");
  EXPECT_EQ(c.read_all(), "");
}

TEST(HttpServer, UnixSocketAndBusyPort) {
  HttpServerOptions options;
  options.port = 0;
  const auto nothing = [](const HttpRequest&) -> std::optional<HttpResponse> { return std::nullopt; };
  const auto handler = [](auto, auto) {};
  auto first = HttpServer::bind(options, nothing, handler);
  ASSERT_TRUE(first.ok());
  options.port = (*first)->port();
  const auto second = HttpServer::bind(options, nothing, handler);
  ASSERT_FALSE(second.ok());
  EXPECT_NE(second.error().hint.find("--port"), std::string::npos);
  options.unix_socket = "/nonexistent/folder/socket";
  EXPECT_FALSE(HttpServer::bind(options, nothing, handler).ok());
}

}  // namespace
}  // namespace mlxcel
