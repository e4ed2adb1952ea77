#include "client/api_client.h"

#include <curl/curl.h>
#include <fmt/format.h>

#include <map>
#include <vector>

#include "client/event_stream.h"

namespace mlxcel {
namespace {

constexpr size_t kMaxPlainBytes = size_t{256} << 20;
constexpr size_t kMaxErrorBytes = size_t{64} << 10;

struct EasyFree {
  void operator()(CURL* handle) const { curl_easy_cleanup(handle); }
};
struct HeadersFree {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};
using Easy = std::unique_ptr<CURL, EasyFree>;
using Headers = std::unique_ptr<curl_slist, HeadersFree>;

int status_of(CURL* handle) {
  long status = 0;
  curl_easy_getinfo(handle, CURLINFO_RESPONSE_CODE, &status);
  return static_cast<int>(status);
}

ErrorKind kind_of_status(int status) {
  if (status == 404) return ErrorKind::kNotFound;
  if (status == 501) return ErrorKind::kUnsupported;
  if (status == 429 || status == 503) return ErrorKind::kResourceExhausted;
  if (status >= 400 && status < 500) return ErrorKind::kInvalidArgument;
  return ErrorKind::kIo;
}

// The server's own words: {"error": {"message": ...}}, {"error": "..."}, {"message": ...} or the text itself.
std::string message_of(const JsonValue& body) {
  const JsonValue* error = body.find_set("error");
  if (error != nullptr && error->is_string()) return error->as_string();
  const JsonValue* message = (error != nullptr ? *error : body).find_set("message");
  return message != nullptr && message->is_string() ? message->as_string() : std::string();
}

Error status_error(const std::string& url, int status, const std::string& body) {
  const auto json = parse_json(body, url);
  std::string said = json.ok() ? message_of(*json) : std::string();
  if (said.empty()) said = body.substr(0, 300);
  return make_error(kind_of_status(status), "the server refused the request", url, "status 200",
                    fmt::format("status {}: {}", status, said.empty() ? "(no text)" : said),
                    status == 401 ? "give its key with --api-key-file" : "");
}

Error transfer_error(const std::string& url, CURLcode code) {
  const bool is_absent = code == CURLE_COULDNT_CONNECT || code == CURLE_COULDNT_RESOLVE_HOST;
  return make_error(ErrorKind::kIo, is_absent ? "no server answers" : "the connection broke", url, "",
                    curl_easy_strerror(code),
                    is_absent ? "is it running? its ready line shows the address" : "");
}

}  // namespace

struct ApiClient::State {
  struct Exchange {
    State* client = nullptr;
    StreamId id = 0;
    std::string url, sent, received;  // received: of plain answers and refusals
    Easy handle;
    bool is_stream = false, is_cancelled = false, is_overlong = false;
    ApiStreamCallbacks callbacks;
    std::unique_ptr<EventStreamParser> parser;
    ApiStreamEnd end;
  };

  ApiClientOptions options;
  CURLM* multi = nullptr;
  Headers headers;
  std::map<StreamId, std::unique_ptr<Exchange>> streams;
  StreamId next_id = 1;

  ~State() {
    for (auto& [id, exchange] : streams) curl_multi_remove_handle(multi, exchange->handle.get());
    streams.clear();
    if (multi != nullptr) curl_multi_cleanup(multi);
  }

  static size_t take_body(char* data, size_t size, size_t count, void* user) {
    auto& x = *static_cast<Exchange*>(user);
    const std::string_view piece(data, size * count);
    const bool is_events = x.is_stream && status_of(x.handle.get()) == 200;
    if (is_events) {
      x.is_overlong = !x.parser->feed(piece);
    } else {
      const size_t limit = x.is_stream ? kMaxErrorBytes : kMaxPlainBytes;
      x.is_overlong = x.received.size() + piece.size() > limit;
      if (!x.is_overlong) x.received += piece;
    }
    return x.is_overlong ? 0 : piece.size();
  }

  std::unique_ptr<Exchange> prepare(const std::string& path, std::optional<std::string> body) {
    auto x = std::make_unique<Exchange>();
    x->client = this;
    x->url = options.base_url + path;
    x->handle.reset(curl_easy_init());
    MLXCEL_CHECK(x->handle != nullptr);
    CURL* h = x->handle.get();
    curl_easy_setopt(h, CURLOPT_URL, x->url.c_str());
    curl_easy_setopt(h, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(h, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(h, CURLOPT_NOPROXY, "localhost,127.0.0.1,::1");
    curl_easy_setopt(h, CURLOPT_CONNECTTIMEOUT_MS,
                     static_cast<long>(options.connect_timeout_seconds * 1000.0));
    curl_easy_setopt(h, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(h, CURLOPT_LOW_SPEED_TIME, static_cast<long>(options.silence_timeout_seconds));
    curl_easy_setopt(h, CURLOPT_HTTPHEADER, headers.get());
    curl_easy_setopt(h, CURLOPT_TCP_NODELAY, 1L);
    curl_easy_setopt(h, CURLOPT_WRITEFUNCTION, &State::take_body);
    curl_easy_setopt(h, CURLOPT_WRITEDATA, x.get());
    curl_easy_setopt(h, CURLOPT_PRIVATE, x.get());
    if (body) {
      x->sent = *std::move(body);
      curl_easy_setopt(h, CURLOPT_POST, 1L);
      curl_easy_setopt(h, CURLOPT_POSTFIELDS, x->sent.c_str());
      curl_easy_setopt(h, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(x->sent.size()));
    }
    return x;
  }

  Result<JsonValue> perform(const std::string& path, std::optional<std::string> body) {
    const std::unique_ptr<Exchange> x = prepare(path, std::move(body));
    const CURLcode code = curl_easy_perform(x->handle.get());
    if (code != CURLE_OK) return transfer_error(x->url, code);
    const int status = status_of(x->handle.get());
    if (status < 200 || status > 299) return status_error(x->url, status, x->received);
    if (x->received.empty()) return JsonValue();
    return parse_json(x->received, x->url);
  }

  static void take_event(Exchange& x, std::string_view name, std::string_view data) {
    if (x.is_cancelled || x.end.is_complete || x.end.error) return;
    if (data == "[DONE]") {
      x.end.is_complete = true;
      return;
    }
    auto chunk = parse_json(data, x.url);
    if (!chunk.ok()) {
      x.end.error = std::move(chunk).error();
    } else if (name == "error" || chunk->find_set("error") != nullptr) {
      const std::string said = message_of(*chunk);
      x.end.error = make_error(ErrorKind::kIo, "the server gave up in mid-answer", x.url, "",
                               said.empty() ? std::string(data.substr(0, 300)) : said);
    } else {
      x.callbacks.on_chunk(*chunk);
    }
  }

  void finish(Exchange& x, CURLcode code) {
    x.end.status = status_of(x.handle.get());
    if (x.is_cancelled) {
      x.end.error = make_error(ErrorKind::kCancelled, "cancelled");
    } else if (x.is_overlong) {
      x.end.error = make_error(ErrorKind::kInvalidData, "the answer is too long", x.url);
    } else if (x.end.error || x.end.is_complete) {
      // said in the stream
    } else if (code != CURLE_OK) {
      x.end.error = transfer_error(x.url, code);
    } else if (x.end.status != 200) {
      x.end.error = status_error(x.url, x.end.status, x.received);
    } else {
      x.end.error = make_error(ErrorKind::kIo, "the stream ended early", x.url, "data: [DONE]", "the end");
    }
    curl_multi_remove_handle(multi, x.handle.get());
    const auto node = streams.extract(x.id);  // gone before on_end, which may start another
    node.mapped()->callbacks.on_end(node.mapped()->end);
  }
};

Result<std::unique_ptr<ApiClient>> ApiClient::create(ApiClientOptions options) {
  static const CURLcode initialised = curl_global_init(CURL_GLOBAL_DEFAULT);
  if (initialised != CURLE_OK) return make_error(ErrorKind::kInternal, "libcurl does not start");
  std::string& base = options.base_url;
  while (base.ends_with('/')) base.pop_back();
  if (base.ends_with("/v1")) base.resize(base.size() - 3);
  if (!base.starts_with("http://") && !base.starts_with("https://")) {
    return make_error(ErrorKind::kInvalidArgument, "no address of a server", "--server",
                      "http://HOST:PORT or https://HOST:PORT", fmt::format("'{}'", base));
  }
  auto state = std::make_unique<State>();
  curl_slist* list = curl_slist_append(nullptr, "Content-Type: application/json");
  list = curl_slist_append(list, "Expect:");  // no waiting for 100 Continue
  if (!options.api_key.empty())
    list = curl_slist_append(list, ("Authorization: Bearer " + options.api_key).c_str());
  state->headers.reset(list);
  state->options = std::move(options);
  state->multi = curl_multi_init();
  MLXCEL_CHECK(state->multi != nullptr);
  return std::unique_ptr<ApiClient>(new ApiClient(std::move(state)));
}

ApiClient::ApiClient(std::unique_ptr<State> state) : state_(std::move(state)) {}
ApiClient::~ApiClient() = default;

Result<JsonValue> ApiClient::get(const std::string& path) { return state_->perform(path, std::nullopt); }
Result<JsonValue> ApiClient::post(const std::string& path, const JsonValue& body) {
  return state_->perform(path, to_json(body));
}

ApiClient::StreamId ApiClient::start_stream(const std::string& path, const JsonValue& body,
                                            ApiStreamCallbacks callbacks) {
  MLXCEL_CHECK(callbacks.on_chunk && callbacks.on_end);
  std::unique_ptr<State::Exchange> x = state_->prepare(path, to_json(body));
  x->id = state_->next_id++;
  x->is_stream = true;
  x->callbacks = std::move(callbacks);
  x->parser = std::make_unique<EventStreamParser>(
      [raw = x.get()](std::string_view name, std::string_view data) { State::take_event(*raw, name, data); });
  curl_multi_add_handle(state_->multi, x->handle.get());
  const StreamId id = x->id;
  state_->streams.emplace(id, std::move(x));
  return id;
}

void ApiClient::cancel(StreamId id) {
  const auto it = state_->streams.find(id);
  if (it != state_->streams.end()) it->second->is_cancelled = true;
}

size_t ApiClient::num_streams() const { return state_->streams.size(); }

void ApiClient::poll(double seconds) {
  std::vector<State::Exchange*> cancelled;
  for (const auto& [id, x] : state_->streams) {
    if (x->is_cancelled) cancelled.push_back(x.get());
  }
  for (State::Exchange* x : cancelled) state_->finish(*x, CURLE_OK);
  int running = 0;
  curl_multi_perform(state_->multi, &running);
  std::vector<std::pair<State::Exchange*, CURLcode>> ended;
  int left = 0;
  while (const CURLMsg* message = curl_multi_info_read(state_->multi, &left)) {
    if (message->msg != CURLMSG_DONE) continue;
    State::Exchange* x = nullptr;
    curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &x);
    ended.emplace_back(x, message->data.result);
  }
  for (const auto& [x, code] : ended) state_->finish(*x, code);
  if (!ended.empty() || !cancelled.empty() || seconds <= 0.0) return;
  curl_multi_poll(state_->multi, nullptr, 0, static_cast<int>(seconds * 1000.0), nullptr);
  curl_multi_perform(state_->multi, &running);
}

}  // namespace mlxcel
