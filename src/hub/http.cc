#include "hub/http.h"

#include <curl/curl.h>
#include <fmt/format.h>

#include <charconv>
#include <cmath>

namespace mlxcel {
namespace {

constexpr size_t kMaxErrorBodyBytes = size_t{64} << 10;
constexpr size_t kMaxHeaderBytes = size_t{256} << 10;

struct UrlFree {
  void operator()(CURLU* url) const { curl_url_cleanup(url); }
};
using Url = std::unique_ptr<CURLU, UrlFree>;

Url parse_url(const std::string& text) {
  Url url(curl_url());
  if (url == nullptr || curl_url_set(url.get(), CURLUPART_URL, text.c_str(), 0) != CURLUE_OK) return nullptr;
  return url;
}

std::string url_part(CURLU* url, CURLUPart part) {
  char* text = nullptr;
  if (curl_url_get(url, part, &text, CURLU_DEFAULT_PORT) != CURLUE_OK) return "";
  std::string out(text);
  curl_free(text);
  return out;
}

// "https://host:443": what decides whether a token may go along.
std::string origin_of(const std::string& text) {
  const Url url = parse_url(text);
  if (url == nullptr) return "";
  std::string host = url_part(url.get(), CURLUPART_HOST);
  for (char& c : host) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return fmt::format("{}://{}:{}", url_part(url.get(), CURLUPART_SCHEME), host,
                     url_part(url.get(), CURLUPART_PORT));
}

// `location` relative to `base`; empty when it is no URL.
std::string resolve_url(const std::string& base, const std::string& location) {
  const Url url = parse_url(base);
  if (url == nullptr || curl_url_set(url.get(), CURLUPART_URL, location.c_str(), 0) != CURLUE_OK) return "";
  return url_part(url.get(), CURLUPART_URL);
}

std::string without_query(const std::string& url) { return url.substr(0, url.find('?')); }

struct Transfer {
  FetchResponse response;
  const std::function<bool(const FetchResponse&)>* on_start = nullptr;
  const std::function<bool(std::string_view)>* on_body = nullptr;
  const std::function<bool()>* is_cancelled = nullptr;
  CURL* handle = nullptr;
  size_t header_bytes = 0;
  bool started = false, refused = false;
};

std::string lower_case(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == '\r' || text.back() == '\n' || text.back() == ' '))
    text.remove_suffix(1);
  return text;
}

size_t take_header(char* data, size_t size, size_t count, void* user) {
  auto& transfer = *static_cast<Transfer*>(user);
  const std::string_view line(data, size * count);
  transfer.header_bytes += line.size();
  if (transfer.header_bytes > kMaxHeaderBytes) return 0;
  if (line.starts_with("HTTP/")) transfer.response.headers.clear();  // 100 Continue, then the real one
  if (const size_t colon = line.find(':'); colon != std::string_view::npos) {
    transfer.response.headers[lower_case(line.substr(0, colon))] =
        std::string(trimmed(line.substr(colon + 1)));
  }
  return line.size();
}

size_t take_body(char* data, size_t size, size_t count, void* user) {
  auto& transfer = *static_cast<Transfer*>(user);
  const std::string_view piece(data, size * count);
  long status = 0;
  curl_easy_getinfo(transfer.handle, CURLINFO_RESPONSE_CODE, &status);
  transfer.response.status = static_cast<int>(status);
  if (status != 200 && status != 206) {
    if (transfer.response.body.size() + piece.size() <= kMaxErrorBodyBytes) transfer.response.body += piece;
    return piece.size();
  }
  if (!transfer.started) {
    transfer.started = true;
    transfer.refused = !(*transfer.on_start)(transfer.response);
  }
  if (!transfer.refused) transfer.refused = !(*transfer.on_body)(piece);
  return transfer.refused ? 0 : piece.size();
}

int check_cancelled(void* user, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  const auto& transfer = *static_cast<Transfer*>(user);
  return *transfer.is_cancelled && (*transfer.is_cancelled)() ? 1 : 0;
}

bool is_transient_code(CURLcode code) {
  switch (code) {
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
    case CURLE_PARTIAL_FILE:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_GOT_NOTHING:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM:
      return true;
    default:
      return false;
  }
}

bool is_transient_status(int status) {
  return status == 408 || status == 429 || status == 500 || status == 502 || status == 503 || status == 504;
}

std::optional<double> retry_after(const FetchResponse& response) {
  const auto it = response.headers.find("retry-after");
  if (it == response.headers.end()) return std::nullopt;
  double seconds = 0.0;
  const std::string& text = it->second;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error != std::errc() || end != text.data() + text.size() || !(seconds >= 0.0)) return std::nullopt;
  return seconds;
}

struct ListFree {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};

bool is_redirect(int status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

}  // namespace

struct HttpClient::State {
  CURL* handle = nullptr;
  State() {
    MLXCEL_CHECK(curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK);
    handle = curl_easy_init();
    MLXCEL_CHECK(handle != nullptr);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    curl_easy_cleanup(handle);
    curl_global_cleanup();
  }
};

HttpClient::HttpClient(HttpOptions options)
    : options_(std::move(options)), state_(std::make_unique<State>()) {}
HttpClient::~HttpClient() = default;

FetchResponse HttpClient::get_once(const std::string& url, const FetchRequest& request, bool with_token,
                                   const std::function<bool(const FetchResponse&)>& on_start,
                                   const std::function<bool(std::string_view)>& on_body) {
  CURL* handle = state_->handle;
  curl_easy_reset(handle);  // keeps connections
  Transfer transfer;
  transfer.on_start = &on_start;
  transfer.on_body = &on_body;
  transfer.is_cancelled = &options_.is_cancelled;
  transfer.handle = handle;
  std::unique_ptr<curl_slist, ListFree> headers;
  const auto add_header = [&](const std::string& line) {
    curl_slist* longer = curl_slist_append(headers.get(), line.c_str());
    MLXCEL_CHECK(longer != nullptr);
    (void)headers.release();
    headers.reset(longer);
  };
  for (const auto& [name, value] : request.headers) add_header(name + ": " + value);
  if (with_token) add_header("Authorization: Bearer " + options_.token);
  char message[CURL_ERROR_SIZE] = "";
  curl_easy_setopt(handle, CURLOPT_URL, url.c_str());
  curl_easy_setopt(handle, CURLOPT_HTTPHEADER, headers.get());
  curl_easy_setopt(handle, CURLOPT_USERAGENT, "mlxcel");
  curl_easy_setopt(handle, CURLOPT_FOLLOWLOCATION, 0L);
  curl_easy_setopt(handle, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(handle, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(handle, CURLOPT_CONNECTTIMEOUT_MS, std::lround(options_.connect_timeout_seconds * 1000));
  curl_easy_setopt(handle, CURLOPT_LOW_SPEED_LIMIT, 1L);
  curl_easy_setopt(handle, CURLOPT_LOW_SPEED_TIME, std::max(1L, std::lround(options_.stall_timeout_seconds)));
  curl_easy_setopt(handle, CURLOPT_HEADERFUNCTION, take_header);
  curl_easy_setopt(handle, CURLOPT_HEADERDATA, &transfer);
  curl_easy_setopt(handle, CURLOPT_WRITEFUNCTION, take_body);
  curl_easy_setopt(handle, CURLOPT_WRITEDATA, &transfer);
  curl_easy_setopt(handle, CURLOPT_NOPROGRESS, 0L);
  curl_easy_setopt(handle, CURLOPT_XFERINFOFUNCTION, check_cancelled);
  curl_easy_setopt(handle, CURLOPT_XFERINFODATA, &transfer);
  curl_easy_setopt(handle, CURLOPT_ERRORBUFFER, message);
  const CURLcode code = curl_easy_perform(handle);
  long status = 0;
  curl_easy_getinfo(handle, CURLINFO_RESPONSE_CODE, &status);
  FetchResponse response = std::move(transfer.response);
  response.status = static_cast<int>(status);
  response.retry_after_seconds = retry_after(response);
  response.is_transient = is_transient_status(response.status);
  if (code == CURLE_OK && !transfer.started && (status == 200 || status == 206) && !on_start(response)) {
    transfer.refused = true;  // an empty body
  }
  if (transfer.refused) {
    response.failure = make_error(ErrorKind::kIo, "transfer stopped by the receiver", without_query(url));
  } else if (code == CURLE_ABORTED_BY_CALLBACK) {
    response.failure = make_error(ErrorKind::kCancelled, "cancelled", without_query(url));
  } else if (code != CURLE_OK) {
    response.failure = make_error(ErrorKind::kIo, "the transfer failed", without_query(url), "",
                                  message[0] != '\0' ? message : curl_easy_strerror(code),
                                  "check the network and the hub's address (--endpoint, HF_ENDPOINT)");
    response.is_transient = is_transient_code(code);
  }
  return response;
}

FetchResponse HttpClient::get(const FetchRequest& request,
                              const std::function<bool(const FetchResponse&)>& on_start,
                              const std::function<bool(std::string_view)>& on_body) {
  const std::string trusted = options_.token.empty() ? "" : origin_of(options_.token_origin);
  std::string url = request.url;
  std::map<std::string, std::string> first_headers;
  for (int hop = 0; hop <= options_.max_redirects; ++hop) {
    const bool with_token = !trusted.empty() && origin_of(url) == trusted;
    FetchResponse response = get_once(url, request, with_token, on_start, on_body);
    if (hop == 0) first_headers = response.headers;
    response.first_headers = first_headers;
    if (response.failure || !is_redirect(response.status)) return response;
    const std::string next = resolve_url(url, response.headers["location"]);
    const bool is_downgrade = url.starts_with("https://") && !next.starts_with("https://");
    if (next.empty() || is_downgrade) {
      response.failure = make_error(ErrorKind::kIo, "the server redirects to an address that cannot be used",
                                    without_query(url), is_downgrade ? "an https address" : "an address",
                                    next.empty() ? "none" : without_query(next));
      return response;
    }
    url = next;
  }
  FetchResponse response;
  response.failure = make_error(ErrorKind::kIo, "too many redirects", without_query(request.url),
                                fmt::format("at most {}", options_.max_redirects));
  return response;
}

std::string encode_url_path(std::string_view path) {
  std::string out;
  for (const char c : path) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '.' || c == '_' || c == '~' || c == '/';
    if (plain) {
      out += c;
    } else {
      out += fmt::format("%{:02X}", static_cast<unsigned>(static_cast<unsigned char>(c)));
    }
  }
  return out;
}

}  // namespace mlxcel
