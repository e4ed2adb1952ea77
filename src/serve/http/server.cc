// The server behind serve/http/http.h: Boost.Asio coroutines on one I/O thread, Beast for parsing requests.
// Responses are written as plain bytes (a head and a body, or chunks), so that a stream can be queued from
// any thread.
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <boost/asio.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <deque>
#include <mutex>
#include <set>

#include "base/log.h"
#include "serve/http/http.h"

namespace mlxcel {

namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
using Socket = asio::generic::stream_protocol::socket;
using Stream = beast::basic_stream<asio::generic::stream_protocol>;
using Clock = std::chrono::steady_clock;
constexpr auto kUseTuple = asio::as_tuple(asio::use_awaitable);

Clock::duration seconds(double s) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(s));
}

std::string serialise_head(const HttpResponse& response, bool chunked, bool keep_alive) {
  std::string head = fmt::format("HTTP/1.1 {} {}\r\n", response.status, http_reason(response.status));
  if (!response.content_type.empty()) head += fmt::format("Content-Type: {}\r\n", response.content_type);
  for (const auto& [name, value] : response.headers) head += fmt::format("{}: {}\r\n", name, value);
  if (chunked) {
    head += "Transfer-Encoding: chunked\r\nCache-Control: no-store\r\nX-Accel-Buffering: no\r\n";
  } else if (response.status != 204) {
    head += fmt::format("Content-Length: {}\r\n", response.body.size());
  }
  head += keep_alive ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n";
  return head;
}

// What a handler has said so far, taken by the connection piece by piece. The wake-up is a timer on the I/O
// thread.
class Writer final : public ResponseWriter, public std::enable_shared_from_this<Writer> {
 public:
  Writer(const asio::any_io_executor& executor, size_t max_queued)
      : wake_(executor), max_queued_(max_queued) {
    wake_.expires_at(Clock::time_point::max());
  }

  void send(HttpResponse response) override {
    {
      const std::lock_guard lock(mutex_);
      if (head_ || closed_) return;
      head_ = std::move(response);
      ended_ = true;
    }
    wake();
  }
  void begin_stream(HttpResponse head, double ping_seconds) override {
    {
      const std::lock_guard lock(mutex_);
      if (head_ || closed_) return;
      head_ = std::move(head);
      streaming_ = true;
      ping_seconds_ = ping_seconds;
    }
    wake();
  }
  bool write(std::string bytes) override {
    bool overflow = false;
    {
      const std::lock_guard lock(mutex_);
      if (closed_ || ended_) return false;
      if (bytes.empty()) return true;
      queued_ += bytes.size();
      overflow = queued_ > max_queued_;
      if (overflow) {
        overflowed_ = true;
      } else {
        chunks_.push_back(std::move(bytes));
      }
    }
    wake();
    return !overflow;
  }
  void end_stream() override {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
    }
    wake();
  }
  bool is_open() const override {
    const std::lock_guard lock(mutex_);
    return !closed_ && !overflowed_;
  }
  void on_disconnect(std::function<void()> callback) override {
    {
      const std::lock_guard lock(mutex_);
      if (!closed_) {
        disconnect_ = std::move(callback);
        return;
      }
    }
    asio::post(wake_.get_executor(), std::move(callback));
  }

  // ---- for the connection, on the I/O thread ----
  struct Work {
    std::optional<HttpResponse> head;  // set once
    std::string bytes;                 // of the stream
    bool ended = false, overflowed = false;
  };
  Work take() {
    const std::lock_guard lock(mutex_);
    Work work;
    if (head_ && !head_taken_) {
      head_taken_ = true;
      work.head = *head_;
    }
    for (std::string& c : chunks_) work.bytes += c;
    chunks_.clear();
    queued_ = 0;
    work.ended = ended_;
    work.overflowed = overflowed_;
    return work;
  }
  bool has_work() const {
    const std::lock_guard lock(mutex_);
    return (head_ && !head_taken_) || !chunks_.empty() || ended_ || overflowed_ || closed_;
  }
  bool streaming() const { return streaming_; }
  double ping_seconds() const {
    const std::lock_guard lock(mutex_);
    return streaming_ ? ping_seconds_ : 0.0;
  }
  // The connection is over. Tells the handler when it had not ended its answer.
  void close() {
    std::function<void()> callback;
    {
      const std::lock_guard lock(mutex_);
      if (closed_) return;
      closed_ = true;
      if (!ended_ || overflowed_ || !delivered_) callback = std::move(disconnect_);
      disconnect_ = nullptr;
    }
    if (callback) callback();
    wake_.cancel();
  }
  void set_delivered() {
    const std::lock_guard lock(mutex_);
    delivered_ = true;
  }
  asio::steady_timer& timer() { return wake_; }

 private:
  void wake() {
    asio::post(wake_.get_executor(), [self = shared_from_this()] { self->wake_.cancel(); });
  }

  mutable std::mutex mutex_;
  asio::steady_timer wake_;
  const size_t max_queued_;
  std::optional<HttpResponse> head_;
  std::deque<std::string> chunks_;
  size_t queued_ = 0;
  double ping_seconds_ = 0.0;
  bool head_taken_ = false, streaming_ = false, ended_ = false, overflowed_ = false, closed_ = false,
       delivered_ = false;
  std::function<void()> disconnect_;
};

class Server final : public HttpServer {
 public:
  Server(HttpServerOptions options, EarlyCheck before_body, HttpHandler handler)
      : options_(std::move(options)), before_body_(std::move(before_body)), handler_(std::move(handler)) {}
  ~Server() override {
    if (!options_.unix_socket.empty() && bound_) ::unlink(options_.unix_socket.c_str());
  }

  Status listen() {
    boost::system::error_code ec;
    if (!options_.unix_socket.empty()) return listen_unix();
    asio::ip::tcp::resolver resolver(io_);
    const auto found =
        resolver.resolve(options_.host, std::to_string(options_.port), asio::ip::tcp::resolver::passive, ec);
    if (ec || found.empty()) {
      return make_error(ErrorKind::kInvalidArgument, "cannot resolve the address to listen on", options_.host,
                        {}, ec.message(),
                        "use --host with an address of this machine, for example 127.0.0.1");
    }
    const asio::ip::tcp::endpoint endpoint = found.begin()->endpoint();
    tcp_.emplace(io_);
    tcp_->open(endpoint.protocol(), ec);
    if (!ec) tcp_->set_option(asio::socket_base::reuse_address(true), ec);
    if (!ec) tcp_->bind(endpoint, ec);
    if (!ec) tcp_->listen(1024, ec);
    if (ec) {
      return make_error(ErrorKind::kIo, "cannot listen", fmt::format("{}:{}", options_.host, options_.port),
                        {}, ec.message(),
                        "choose another address with --host and --port (port 0 picks a free one)");
    }
    port_ = tcp_->local_endpoint().port();
    const std::string host = endpoint.address().to_string();
    address_ = endpoint.address().is_v6() ? fmt::format("http://[{}]:{}", host, port_)
                                          : fmt::format("http://{}:{}", host, port_);
    bound_ = true;
    return ok_status();
  }

  std::string address() const override { return address_; }
  uint16_t port() const override { return port_; }
  int num_connections() const override { return connections_.load(std::memory_order_relaxed); }

  void run() override {
    if (tcp_) asio::co_spawn(io_, accept_loop(*tcp_), asio::detached);
    if (unix_) asio::co_spawn(io_, accept_loop(*unix_), asio::detached);
    const auto guard = asio::make_work_guard(io_);
    io_.run();
  }
  void stop_accepting() override {
    asio::post(io_, [this] {
      draining_ = true;
      boost::system::error_code ignored;
      if (tcp_) tcp_->close(ignored);
      if (unix_) unix_->close(ignored);
    });
  }
  void stop() override { io_.stop(); }
  void post(std::function<void()> task) override { asio::post(io_, std::move(task)); }
  void post_after(double delay, std::function<void()> task) override {
    asio::post(io_, [this, delay, task = std::move(task)]() mutable {
      auto timer = std::make_shared<asio::steady_timer>(io_, seconds(delay));
      timer->async_wait([timer, task = std::move(task)](boost::system::error_code ec) {
        if (!ec) task();
      });
    });
  }

 private:
  Status listen_unix() {
    const std::string& path = options_.unix_socket;
    // A socket file left by a server that died is replaced; anything else at that path is not ours to remove.
    struct stat info {};
    if (::lstat(path.c_str(), &info) == 0) {
      if (!S_ISSOCK(info.st_mode)) {
        return make_error(ErrorKind::kInvalidArgument, "the path of the unix socket exists and is no socket",
                          path);
      }
      ::unlink(path.c_str());
    }
    boost::system::error_code ec;
    unix_.emplace(io_);
    unix_->open(asio::local::stream_protocol(), ec);
    if (!ec) unix_->bind(asio::local::stream_protocol::endpoint(path), ec);
    if (!ec) unix_->listen(1024, ec);
    if (ec) return make_error(ErrorKind::kIo, "cannot listen on the unix socket", path, {}, ec.message());
    address_ = "unix:" + path;
    bound_ = true;
    return ok_status();
  }

  static std::string remote_name(const asio::ip::tcp::socket& s) {
    boost::system::error_code ec;
    const auto endpoint = s.remote_endpoint(ec);
    return ec ? std::string("unknown")
              : fmt::format("{}:{}", endpoint.address().to_string(), endpoint.port());
  }
  static std::string remote_name(const asio::local::stream_protocol::socket&) { return "unix"; }
  static void tune(asio::ip::tcp::socket& s) {
    boost::system::error_code ignored;
    s.set_option(asio::ip::tcp::no_delay(true), ignored);
  }
  static void tune(asio::local::stream_protocol::socket&) {}

  template <typename Acceptor>
  asio::awaitable<void> accept_loop(Acceptor& acceptor) {
    for (;;) {
      auto [ec, socket] = co_await acceptor.async_accept(kUseTuple);
      if (ec == asio::error::operation_aborted || !acceptor.is_open()) co_return;
      if (ec) {
        // Out of descriptors, most likely: breathe instead of spinning; the clients wait in the backlog.
        asio::steady_timer pause(io_, std::chrono::milliseconds(50));
        co_await pause.async_wait(kUseTuple);
        continue;
      }
      if (connections_.load() >= options_.limits.max_connections) continue;  // closes it
      tune(socket);
      std::string remote = remote_name(socket);
      connections_.fetch_add(1);
      asio::co_spawn(io_, serve(Stream(Socket(std::move(socket))), std::move(remote)),
                     [this](std::exception_ptr) { connections_.fetch_sub(1); });
    }
  }

  using Parser = beast::http::request_parser<beast::http::string_body>;

  // Everything about one connection: requests one after the other until it closes.
  asio::awaitable<void> serve(Stream stream, std::string remote) {
    beast::flat_buffer buffer;
    for (bool keep_alive = true; keep_alive;) {
      auto request = std::make_shared<HttpRequest>();
      request->remote = remote;
      auto [complete, early] = co_await read_request(stream, buffer, *request, keep_alive);
      if (early) {
        // Answered without the body: the rest of it is unread, so the connection cannot go on.
        co_await write_all(stream, serialise_head(*early, false, false) + early->body);
        co_await linger(stream);
        break;
      }
      if (!complete) break;
      keep_alive = keep_alive && !draining_;
      auto writer = std::make_shared<Writer>(stream.get_executor(), options_.limits.max_queued_bytes);
      handler_(request, writer);
      const bool alive = co_await answer(stream, buffer, writer, keep_alive, request->method == "HEAD");
      writer->close();
      if (!alive) break;
    }
    boost::system::error_code ignored;
    stream.socket().shutdown(Socket::shutdown_both, ignored);
  }

  struct ReadResult {
    bool complete = false;
    std::optional<HttpResponse> early;  // an answer to give at once, then close
  };

  static HttpResponse plain_error(int status, std::string_view message) {
    HttpResponse r;
    r.status = status;
    r.body =
        fmt::format(R"({{"error":{{"message":"{}","type":"invalid_request_error","param":null,"code":{}}}}})",
                    message, status);
    return r;
  }

  asio::awaitable<ReadResult> read_request(Stream& stream, beast::flat_buffer& buffer, HttpRequest& request,
                                           bool& keep_alive) {
    Parser parser;
    parser.header_limit(static_cast<uint32_t>(options_.limits.max_header_bytes));
    parser.body_limit(options_.limits.max_body_bytes);
    stream.expires_after(seconds(options_.limits.header_timeout_seconds));
    auto [ec, n] = co_await beast::http::async_read_header(stream, buffer, parser, kUseTuple);
    if (ec) co_return ReadResult{false, header_error(ec)};
    take_head(parser, request);
    keep_alive = parser.keep_alive();
    if (auto refusal = before_body_(request)) co_return ReadResult{false, std::move(refusal)};
    if (beast::iequals(parser.get()[beast::http::field::expect], "100-continue")) {
      if (!co_await write_all(stream, "HTTP/1.1 100 Continue\r\n\r\n")) co_return ReadResult{};
    }
    if (!parser.is_done()) {
      stream.expires_after(seconds(options_.limits.body_timeout_seconds));
      auto [body_ec, m] = co_await beast::http::async_read(stream, buffer, parser, kUseTuple);
      if (body_ec == beast::http::error::body_limit) co_return ReadResult{false, too_large()};
      if (body_ec == beast::error::timeout)
        co_return ReadResult{false, plain_error(408, "the request body did not arrive in time")};
      if (body_ec) co_return ReadResult{false, body_error(body_ec)};
    }
    request.body = std::move(parser.get().body());
    co_return ReadResult{true, std::nullopt};
  }

  static std::optional<HttpResponse> body_error(const boost::system::error_code& ec) {
    if (ec.category() == make_error_code(beast::http::error::bad_chunk).category()) {
      return plain_error(400, "malformed request body");
    }
    return std::nullopt;  // the client went away
  }
  HttpResponse too_large() const {
    return plain_error(
        413, fmt::format("the request body is larger than {} bytes", options_.limits.max_body_bytes));
  }
  std::optional<HttpResponse> header_error(const boost::system::error_code& ec) const {
    using beast::http::error;
    if (ec == error::end_of_stream || ec == asio::error::operation_aborted) return std::nullopt;
    if (ec == beast::error::timeout) return std::nullopt;  // idle keep-alive or a slow header: just close
    if (ec == error::header_limit) return plain_error(431, "the request header is too large");
    if (ec == error::body_limit) return too_large();
    if (ec.category() == make_error_code(error::bad_target).category())
      return plain_error(400, "malformed HTTP request");
    return std::nullopt;
  }

  void take_head(const Parser& parser, HttpRequest& request) {
    const auto& message = parser.get();
    request.id = ++last_request_;
    request.method = std::string(message.method_string());
    std::string_view target(message.target().data(), message.target().size());
    const size_t question = std::min(target.find('?'), target.size());
    request.path = url_decode(target.substr(0, question), false);
    if (question < target.size()) request.query = std::string(target.substr(question + 1));
    for (const auto& field : message) {
      std::string name(field.name_string());
      for (char& c : name) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
      request.headers.emplace_back(std::move(name), std::string(field.value()));
    }
  }

  asio::awaitable<bool> write_all(Stream& stream, std::string bytes) {
    stream.expires_after(seconds(options_.limits.write_timeout_seconds));
    auto [ec, n] = co_await asio::async_write(stream, asio::buffer(bytes), kUseTuple);
    stream.expires_never();
    co_return !ec;
  }

  // After an early refusal the client may still be sending: read and drop a little, so that it sees the
  // answer instead of a reset.
  asio::awaitable<void> linger(Stream& stream) {
    boost::system::error_code ignored;
    stream.socket().shutdown(Socket::shutdown_send, ignored);
    std::string sink(16 << 10, '\0');
    stream.expires_after(std::chrono::seconds(2));
    for (size_t total = 0; total < (size_t{8} << 20);) {
      auto [ec, n] = co_await stream.async_read_some(asio::buffer(sink), kUseTuple);
      if (ec) break;
      total += n;
    }
  }

  // Reads ahead while an answer is being made, only to notice that the client has gone. What it reads (the
  // next pipelined request) stays in the buffer.
  struct Watch {
    asio::cancellation_signal signal;
    bool running = false;
  };
  asio::awaitable<void> watch_client(Stream& stream, beast::flat_buffer& buffer,
                                     std::shared_ptr<Writer> writer) {
    while (buffer.size() < options_.limits.max_header_bytes) {
      auto [ec, n] = co_await stream.socket().async_read_some(buffer.prepare(4096), kUseTuple);
      if (ec == asio::error::operation_aborted) co_return;
      if (ec) {
        writer->close();
        co_return;
      }
      buffer.commit(n);
    }
  }

  asio::awaitable<bool> answer(Stream& stream, beast::flat_buffer& buffer, std::shared_ptr<Writer> writer,
                               bool keep_alive, bool head_only) {
    auto watch = std::make_shared<Watch>();
    watch->running = true;
    stream.expires_never();
    asio::co_spawn(stream.get_executor(), watch_client(stream, buffer, writer),
                   asio::bind_cancellation_slot(watch->signal.slot(), [watch, writer](std::exception_ptr) {
                     watch->running = false;
                     writer->timer().cancel();
                   }));
    const bool alive = co_await write_answer(stream, *writer, keep_alive, head_only);
    watch->signal.emit(asio::cancellation_type::terminal);
    while (watch->running) {
      writer->timer().expires_after(std::chrono::seconds(1));
      co_await writer->timer().async_wait(kUseTuple);
    }
    co_return alive&& keep_alive && writer->is_open();
  }

  asio::awaitable<bool> write_answer(Stream& stream, Writer& writer, bool keep_alive, bool head_only) {
    auto last_write = Clock::now();
    for (;;) {
      while (!writer.has_work()) {
        const double ping = writer.ping_seconds();
        writer.timer().expires_at(ping > 0 ? last_write + seconds(ping) : Clock::time_point::max());
        co_await writer.timer().async_wait(kUseTuple);
        if (ping > 0 && !writer.has_work() && Clock::now() >= last_write + seconds(ping)) {
          if (!co_await write_all(stream, "8\r\n: ping\n\n\r\n")) co_return false;
          last_write = Clock::now();
        }
      }
      if (!writer.is_open()) co_return false;
      Writer::Work work = writer.take();
      std::string bytes;
      if (work.head) {
        bytes = serialise_head(*work.head, writer.streaming(), keep_alive);
        if (!writer.streaming() && !head_only) bytes += work.head->body;
      }
      if (!work.bytes.empty()) bytes += fmt::format("{:x}\r\n{}\r\n", work.bytes.size(), work.bytes);
      if (work.ended && writer.streaming()) bytes += "0\r\n\r\n";
      if (!bytes.empty() && !co_await write_all(stream, std::move(bytes))) co_return false;
      last_write = Clock::now();
      if (work.ended) {
        writer.set_delivered();
        co_return true;
      }
    }
  }

  HttpServerOptions options_;
  EarlyCheck before_body_;
  HttpHandler handler_;
  asio::io_context io_{1};
  std::optional<asio::ip::tcp::acceptor> tcp_;
  std::optional<asio::local::stream_protocol::acceptor> unix_;
  std::string address_;
  uint16_t port_ = 0;
  std::atomic<int> connections_{0};
  uint64_t last_request_ = 0;
  bool draining_ = false, bound_ = false;
};

}  // namespace

Result<std::unique_ptr<HttpServer>> HttpServer::bind(const HttpServerOptions& options, EarlyCheck before_body,
                                                     HttpHandler handler) {
  auto server = std::make_unique<Server>(options, std::move(before_body), std::move(handler));
  MLXCEL_RETURN_IF_ERROR(server->listen());
  return std::unique_ptr<HttpServer>(std::move(server));
}

}  // namespace mlxcel
