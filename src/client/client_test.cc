// The event-stream parser, and the client against a scripted server on a real socket.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <thread>
#include <vector>

#include "base/environment.h"
#include "client/api_client.h"
#include "client/event_stream.h"

namespace mlxcel {
namespace {

std::vector<std::string> events_of(std::string_view bytes, size_t piece) {
  std::vector<std::string> events;
  EventStreamParser parser([&](std::string_view name, std::string_view data) {
    events.push_back(std::string(name) + "|" + std::string(data));
  });
  for (size_t at = 0; at < bytes.size(); at += piece) EXPECT_TRUE(parser.feed(bytes.substr(at, piece)));
  return events;
}

TEST(EventStream, AnyCutGivesTheSameEvents) {
  constexpr std::string_view kBytes =
      ": ping\n\ndata: {\"a\":1}\n\nevent: error\r\ndata:no blank\r\ndata: second\r\n\r\nid: 3\nretry: 10\n\n"
      "data\n\ndata: cut off";
  const std::vector<std::string> expected = {"|{\"a\":1}", "error|no blank\nsecond", "|"};
  for (const size_t piece : {size_t{1}, size_t{2}, size_t{3}, size_t{7}, kBytes.size()})
    EXPECT_EQ(events_of(kBytes, piece), expected) << piece;
}

TEST(EventStream, AnEndlessLineIsRefused) {
  EventStreamParser parser([](std::string_view, std::string_view) { FAIL(); });
  const std::string piece(1 << 20, 'x');
  bool is_fine = true;
  for (int i = 0; i < 17 && is_fine; ++i) is_fine = parser.feed(piece);
  EXPECT_FALSE(is_fine);
}

// Answers one connection after the other with the next of its scripts, then closes.
class ScriptedServer {
 public:
  explicit ScriptedServer(std::vector<std::string> answers) {
    listener_ = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in a{};
    a.sin_family = AF_INET;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    sockaddr generic{};
    std::memcpy(&generic, &a, sizeof generic);
    socklen_t size = sizeof a;
    EXPECT_EQ(::bind(listener_, &generic, size), 0);
    EXPECT_EQ(::listen(listener_, 16), 0);
    EXPECT_EQ(::getsockname(listener_, &generic, &size), 0);
    std::memcpy(&a, &generic, sizeof a);
    port_ = ntohs(a.sin_port);
    thread_ = std::thread([this, answers = std::move(answers)] {
      for (const std::string& answer : answers) {
        const int fd = ::accept(listener_, nullptr, nullptr);
        std::string request;
        char buffer[4096];
        while (!is_whole(request)) {
          const ssize_t n = ::recv(fd, buffer, sizeof buffer, 0);
          if (n <= 0) break;
          request.append(buffer, static_cast<size_t>(n));
        }
        requests_.push_back(request);
        (void)::send(fd, answer.data(), answer.size(), MSG_NOSIGNAL);
        ::close(fd);
      }
    });
  }
  ~ScriptedServer() {
    join();
    ::close(listener_);
  }
  ScriptedServer(const ScriptedServer&) = delete;
  ScriptedServer& operator=(const ScriptedServer&) = delete;
  void join() {
    if (thread_.joinable()) thread_.join();
  }
  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }
  const std::vector<std::string>& requests() const { return requests_; }

 private:
  static bool is_whole(const std::string& request) {
    const size_t end = request.find("\r\n\r\n");
    if (end == std::string::npos) return false;
    const size_t length = request.find("Content-Length: ");
    const long body =
        length == std::string::npos ? 0 : std::strtol(request.c_str() + length + 16, nullptr, 10);
    return request.size() >= end + 4 + static_cast<size_t>(body);
  }
  int listener_ = -1;
  uint16_t port_ = 0;
  std::thread thread_;
  std::vector<std::string> requests_;
};

std::string answer(const std::string& status, const std::string& body) {
  return "HTTP/1.1 " + status + "\r\nConnection: close\r\n\r\n" + body;
}

std::unique_ptr<ApiClient> client_of(const ScriptedServer& server, const std::string& tail = "") {
  ApiClientOptions options;
  options.base_url = server.url() + tail;
  options.api_key = "secret";
  auto client = ApiClient::create(options);
  EXPECT_TRUE(client.ok());
  return *std::move(client);
}

struct Streamed {
  std::vector<JsonValue> chunks;
  std::optional<ApiStreamEnd> end;
};
Streamed run_stream(ApiClient& client, bool cancel = false) {
  Streamed out;
  const auto id = client.start_stream("/v1/completions", JsonValue(JsonObject()),
                                      {[&](const JsonValue& chunk) { out.chunks.push_back(chunk); },
                                       [&](const ApiStreamEnd& end) {
                                         EXPECT_FALSE(out.end.has_value());
                                         out.end = end;
                                       }});
  if (cancel) client.cancel(id);
  const double deadline = monotonic_seconds() + 20.0;
  while (client.num_streams() > 0 && monotonic_seconds() < deadline) client.poll(0.1);
  return out;
}

TEST(ApiClient, PlainAnswersAndRefusals) {
  const std::string refusal = R"({"error":{"message":"no such thing","code":"x"}})";
  ScriptedServer server({answer("200 OK", R"({"data":[{"id":"m"}]})"), answer("404 Not Found", refusal),
                         answer("401 Unauthorized", "plain words"), answer("200 OK", "{not json")});
  const auto client = client_of(server, "/v1/");
  const auto models = client->get("/v1/models");
  ASSERT_TRUE(models.ok());
  EXPECT_EQ(models->find("data")->as_array()[0].find("id")->as_string(), "m");
  const auto absent = client->get("/v1/none");
  EXPECT_EQ(absent.error().kind, ErrorKind::kNotFound);
  EXPECT_EQ(absent.error().found, "status 404: no such thing");
  const auto locked = client->post("/v1/x", JsonValue(JsonObject()));
  EXPECT_EQ(locked.error().found, "status 401: plain words");
  EXPECT_NE(locked.error().hint.find("key"), std::string::npos);
  EXPECT_EQ(client->get("/v1/bad").error().kind, ErrorKind::kInvalidData);
  server.join();
  EXPECT_TRUE(server.requests()[0].starts_with("GET /v1/models HTTP/1.1\r\n"));
  EXPECT_NE(server.requests()[2].find("Authorization: Bearer secret\r\n"), std::string::npos);
}

TEST(ApiClient, StreamsEndOnceAndSayHow) {
  const std::string chunk = "data: {\"choices\":[]}\n\n";
  ScriptedServer server(
      {answer("200 OK", chunk + chunk + "data: [DONE]\n\n"), answer("200 OK", chunk),
       answer("200 OK", chunk + "event: error\ndata: {\"error\":{\"message\":\"lost\"}}\n\n"),
       answer("503 Service Unavailable", R"({"error":{"message":"full"}})"),
       answer("200 OK", "data: {broken\n\n"), ""});
  const auto client = client_of(server);
  const Streamed whole = run_stream(*client);
  EXPECT_EQ(whole.chunks.size(), 2u);
  EXPECT_TRUE(whole.end->is_complete);
  EXPECT_FALSE(whole.end->error);
  const Streamed cut = run_stream(*client);
  EXPECT_FALSE(cut.end->is_complete);
  EXPECT_EQ(cut.end->error->what, "the stream ended early");
  EXPECT_EQ(run_stream(*client).end->error->found, "lost");
  const Streamed full = run_stream(*client);
  EXPECT_EQ(full.end->status, 503);
  EXPECT_EQ(full.end->error->kind, ErrorKind::kResourceExhausted);
  EXPECT_EQ(run_stream(*client).end->error->kind, ErrorKind::kInvalidData);
  EXPECT_EQ(run_stream(*client).end->error->kind, ErrorKind::kIo);  // closed without a word
}

TEST(ApiClient, CancelledStreamsEndToo) {
  ApiClientOptions options;
  options.base_url = "http://127.0.0.1:9";
  const auto client = ApiClient::create(options);
  ASSERT_TRUE(client.ok());
  EXPECT_EQ(run_stream(**client, true).end->error->kind, ErrorKind::kCancelled);
}

TEST(ApiClient, AddressesAreUrls) {
  ApiClientOptions options;
  options.base_url = "localhost:8080";
  EXPECT_EQ(ApiClient::create(options).error().kind, ErrorKind::kInvalidArgument);
}

}  // namespace
}  // namespace mlxcel
