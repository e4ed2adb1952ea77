#include "hub/pull.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <map>
#include <optional>
#include <thread>

#include "base/file.h"
#include "base/json.h"
#include "hub/digest.h"
#include "hub/http.h"

namespace mlxcel {
namespace {

constexpr size_t kMaxApiBytes = size_t{32} << 20;
constexpr size_t kMaxFiles = 10'000;
constexpr double kMaxBackoffSeconds = 60.0;
constexpr uint64_t kDiskReserveBytes = uint64_t{64} << 20;  // left free after the download

struct RemoteFile {
  std::string path;
  std::optional<uint64_t> size;
  std::string sha256;    // of large files
  std::string git_sha1;  // of the others
};
struct RemoteModel {
  std::string commit;
  std::vector<RemoteFile> files;
};

class FileDescriptor {
 public:
  explicit FileDescriptor(int descriptor) : descriptor_(descriptor) {}
  FileDescriptor(FileDescriptor&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  FileDescriptor& operator=(FileDescriptor&&) = delete;
  ~FileDescriptor() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  int get() const { return descriptor_; }

 private:
  int descriptor_;
};

Error system_error(std::string what, const std::string& path) {
  const int code = errno;
  return make_error(ErrorKind::kIo, std::move(what), path, "", std::strerror(code));
}

std::string lower_case(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

std::optional<uint64_t> parse_unsigned(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

bool is_hex(std::string_view text, size_t length) {
  return text.size() == length && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

std::string header(const std::map<std::string, std::string>& headers, const std::string& name) {
  const auto it = headers.find(name);
  return it == headers.end() ? "" : it->second;
}

// What the hub's status means to the person who asked.
Error status_error(const FetchResponse& response, const ModelName& name, const std::string& what,
                   const PullOptions& options) {
  const std::string found = fmt::format("HTTP status {}", response.status);
  const std::string model_page = fmt::format("{}/{}", options.endpoint, name.repository());
  switch (response.status) {
    case 401:
      return make_error(ErrorKind::kIo, "the hub asks for an access token", what,
                        "a public model or a valid token", found,
                        options.token.empty() ? "set HF_TOKEN; a misspelt name is answered like this too"
                                              : "the token is not accepted, or the name is misspelt");
    case 403:
      return make_error(
          ErrorKind::kIo, "the hub refuses access", what, "", found,
          fmt::format("accept the model's conditions at {} and use a token of that account", model_page));
    case 404:
      return make_error(ErrorKind::kNotFound, "the hub has no such model, revision or file", what, "", found,
                        fmt::format("check the spelling at {}", options.endpoint));
    case 429:
      return make_error(ErrorKind::kIo, "the hub is limiting requests", what, "", found,
                        "try again later, or set HF_TOKEN");
    default:
      return make_error(ErrorKind::kIo, "the hub answers with an error", what, "status 200", found);
  }
}

class Puller {
 public:
  Puller(const ModelName& name, const PullOptions& options)
      : name_(name), options_(options), client_(http_options(options)) {
    while (!options_.endpoint.empty() && options_.endpoint.back() == '/') options_.endpoint.pop_back();
  }

  Result<RemoteModel> read_model();
  // Puts one file into the folder; returns the bytes that came over the network.
  Result<uint64_t> fetch(const RemoteFile& file, const std::string& commit, const std::string& folder);

 private:
  static HttpOptions http_options(const PullOptions& options) {
    HttpOptions http;
    http.token = options.token;
    http.token_origin = options.endpoint;
    http.stall_timeout_seconds = options.stall_timeout_seconds;
    http.is_cancelled = options.is_cancelled;
    return http;
  }
  void report(const RemoteFile& file, uint64_t done, uint64_t resumed, bool finished) const {
    if (options_.on_progress)
      options_.on_progress({file.path, done, file.size.value_or(0), resumed, finished});
  }
  // Waits before attempt number `attempt` (from 1); false when cancelled.
  bool back_off(int attempt, std::optional<double> asked) const;
  struct Attempt;
  Status attempt_fetch(const RemoteFile& file, const std::string& url, Attempt& attempt);
  Status start_body(const FetchResponse& response, const RemoteFile& file, Attempt& attempt) const;
  Status open_partial(const RemoteFile& file, Attempt& attempt) const;
  Status finish_file(const RemoteFile& file, Attempt& attempt) const;

  ModelName name_;
  PullOptions options_;
  HttpClient client_;
};

// One file on its way: what is on disk so far and its running digest.
struct Puller::Attempt {
  std::string final_path, partial_path, etag_path;
  std::optional<FileDescriptor> file;
  std::optional<Digest> sha256, git_sha1;
  uint64_t done = 0, resumed = 0, received = 0;
  bool is_transient = false, is_range_refused = false;
  std::optional<double> retry_after;
};

bool Puller::back_off(int attempt, std::optional<double> asked) const {
  double seconds = options_.first_backoff_seconds;
  for (int i = 1; i < attempt; ++i) seconds = std::min(seconds * 2.0, kMaxBackoffSeconds);
  if (asked) seconds = std::clamp(*asked, seconds, kMaxBackoffSeconds);
  if (options_.sleep) {
    options_.sleep(seconds);
  } else {
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    while (std::chrono::steady_clock::now() < end && !(options_.is_cancelled && options_.is_cancelled())) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  }
  return !(options_.is_cancelled && options_.is_cancelled());
}

Result<RemoteModel> parse_model_answer(const std::string& body, const std::string& url) {
  MLXCEL_ASSIGN_OR_RETURN(const JsonValue json, parse_json(body, url));
  const JsonReader reader(json, url);
  RemoteModel model;
  MLXCEL_ASSIGN_OR_RETURN(model.commit, reader.string("sha", ""));
  if (!model.commit.empty() && !is_hex(model.commit, 40))
    return reader.type_error("sha", "a commit of 40 hex digits");
  const JsonValue* siblings = json.find("siblings");
  if (siblings == nullptr || !siblings->is_array()) return reader.type_error("siblings", "an array");
  if (siblings->as_array().size() > kMaxFiles) {
    return make_error(ErrorKind::kInvalidData, "the model has too many files", url,
                      fmt::format("at most {}", kMaxFiles), fmt::format("{}", siblings->as_array().size()));
  }
  for (const JsonValue& sibling : siblings->as_array()) {
    const JsonReader entry(sibling, url);
    RemoteFile file;
    MLXCEL_ASSIGN_OR_RETURN(file.path, entry.string("rfilename"));
    MLXCEL_ASSIGN_OR_RETURN(const int64_t size, entry.integer("size", -1));
    if (size >= 0) file.size = static_cast<uint64_t>(size);
    if (const JsonValue* lfs = sibling.find_set("lfs")) {
      const JsonReader large(*lfs, url);
      MLXCEL_ASSIGN_OR_RETURN(file.sha256, large.string("sha256", ""));
      if (!is_hex(file.sha256, 64)) return large.type_error("sha256", "64 hex digits");
    } else {
      MLXCEL_ASSIGN_OR_RETURN(file.git_sha1, entry.string("blobId", ""));
      if (!file.git_sha1.empty() && !is_hex(file.git_sha1, 40))
        return entry.type_error("blobId", "40 hex digits");
    }
    model.files.push_back(std::move(file));
  }
  return model;
}

Result<RemoteModel> Puller::read_model() {
  const std::string url = fmt::format("{}/api/models/{}/revision/{}?blobs=true", options_.endpoint,
                                      name_.repository(), encode_url_path(options_.revision));
  for (int attempt = 1;; ++attempt) {
    std::string body;
    bool too_large = false;
    const FetchResponse response = client_.get(
        {url, {}}, [](const FetchResponse&) { return true; },
        [&](std::string_view piece) {
          too_large = body.size() + piece.size() > kMaxApiBytes;
          if (!too_large) body += piece;
          return !too_large;
        });
    if (too_large) {
      return make_error(ErrorKind::kInvalidData, "the hub's answer is too long", url,
                        fmt::format("at most {} bytes", kMaxApiBytes));
    }
    if (!response.failure && response.status == 200) return parse_model_answer(body, url);
    const Error error =
        response.failure ? *response.failure : status_error(response, name_, name_.repository(), options_);
    if (!response.is_transient || attempt > options_.retries) return error;
    if (!back_off(attempt, response.retry_after_seconds))
      return make_error(ErrorKind::kCancelled, "cancelled");
  }
}

// Opens the partial file and digests what is there; starts afresh when it is longer than the file may be.
Status Puller::open_partial(const RemoteFile& file, Attempt& attempt) const {
  attempt.file.reset();
  attempt.file.emplace(::open(attempt.partial_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (attempt.file->get() < 0) return system_error("cannot write the download", attempt.partial_path);
  attempt.sha256.reset();
  attempt.git_sha1.reset();
  if (!file.sha256.empty()) attempt.sha256 = Digest::sha256();
  if (!file.git_sha1.empty() && file.size) attempt.git_sha1 = Digest::git_blob(*file.size);
  struct stat info {};
  if (::fstat(attempt.file->get(), &info) != 0)
    return system_error("cannot read the download", attempt.partial_path);
  attempt.done = static_cast<uint64_t>(info.st_size);
  const bool can_resume =
      file.size && attempt.done <= *file.size && (attempt.sha256 || file_exists(attempt.etag_path));
  if (!can_resume) attempt.done = 0;
  if (::ftruncate(attempt.file->get(), static_cast<off_t>(attempt.done)) != 0) {
    return system_error("cannot write the download", attempt.partial_path);
  }
  std::string buffer(size_t{1} << 20, '\0');
  for (uint64_t offset = 0; offset < attempt.done;) {
    const size_t wanted = static_cast<size_t>(std::min<uint64_t>(buffer.size(), attempt.done - offset));
    const ssize_t got = ::pread(attempt.file->get(), buffer.data(), wanted, static_cast<off_t>(offset));
    if (got <= 0) return system_error("cannot read the download", attempt.partial_path);
    const std::string_view piece(buffer.data(), static_cast<size_t>(got));
    if (attempt.sha256) attempt.sha256->update(piece);
    if (attempt.git_sha1) attempt.git_sha1->update(piece);
    offset += piece.size();
  }
  attempt.resumed = attempt.done;
  return ok_status();
}

// Looks at the answer's head: does the body continue what we have, or start over?
Status Puller::start_body(const FetchResponse& response, const RemoteFile& file, Attempt& attempt) const {
  if (response.status == 206) {
    const std::string range = header(response.headers, "content-range");  // "bytes 5-9/10"
    const size_t space = range.find(' '), dash = range.find('-');
    const bool has_start = space != std::string::npos && dash != std::string::npos && dash > space;
    const auto start = has_start ? parse_unsigned(std::string_view(range).substr(space + 1, dash - space - 1))
                                 : std::nullopt;
    if (start != attempt.done) {
      return make_error(ErrorKind::kInvalidData, "the server sends another part than was asked for",
                        file.path, fmt::format("from byte {}", attempt.done), fmt::format("\"{}\"", range));
    }
  } else if (attempt.done > 0) {  // the whole file: it changed, or the server knows no ranges
    attempt.done = attempt.resumed = 0;
    if (attempt.sha256) attempt.sha256 = Digest::sha256();
    if (attempt.git_sha1) attempt.git_sha1 = Digest::git_blob(file.size.value_or(0));
    if (::ftruncate(attempt.file->get(), 0) != 0)
      return system_error("cannot write the download", attempt.partial_path);
  }
  const std::string etag = header(response.headers, "etag");
  if (!etag.empty() && !etag.starts_with("W/"))
    MLXCEL_RETURN_IF_ERROR(write_file_atomically(attempt.etag_path, etag));
  return ok_status();
}

Status Puller::attempt_fetch(const RemoteFile& file, const std::string& url, Attempt& attempt) {
  attempt.is_transient = attempt.is_range_refused = false;
  FetchRequest request{url, {{"Accept-Encoding", "identity"}}};
  if (attempt.done > 0) {
    request.headers["Range"] = fmt::format("bytes={}-", attempt.done);
    if (auto etag = read_file(attempt.etag_path, 4096); etag.ok() && !etag->empty())
      request.headers["If-Range"] = *etag;
  }
  std::optional<Error> own_error;
  const FetchResponse response = client_.get(
      request,
      [&](const FetchResponse& head) {
        if (Status status = start_body(head, file, attempt); !status.ok()) own_error = status.error();
        return !own_error;
      },
      [&](std::string_view piece) {
        if (file.size && attempt.done + piece.size() > *file.size) {
          own_error = make_error(ErrorKind::kInvalidData, "the server sends more than the file's size",
                                 file.path, fmt::format("{} bytes", *file.size));
          return false;
        }
        for (size_t written = 0; written < piece.size();) {
          const ssize_t got = ::pwrite(attempt.file->get(), piece.data() + written, piece.size() - written,
                                       static_cast<off_t>(attempt.done + written));
          if (got < 0 && errno == EINTR) continue;
          if (got <= 0) {
            own_error = system_error("cannot write the download", attempt.partial_path);
            return false;
          }
          written += static_cast<size_t>(got);
        }
        if (attempt.sha256) attempt.sha256->update(piece);
        if (attempt.git_sha1) attempt.git_sha1->update(piece);
        attempt.done += piece.size();
        attempt.received += piece.size();
        report(file, attempt.done, attempt.resumed, false);
        return true;
      });
  if (own_error) return *own_error;
  attempt.is_transient = response.is_transient;
  attempt.retry_after = response.retry_after_seconds;
  if (response.status == 416) attempt.is_range_refused = true;
  if (response.failure) return *response.failure;
  if (response.status != 200 && response.status != 206)
    return status_error(response, name_, file.path, options_);
  if (file.size && attempt.done != *file.size) {
    attempt.is_transient = true;  // a server that closes early without saying so
    return make_error(ErrorKind::kInvalidData, "the download is shorter than the file", file.path,
                      fmt::format("{} bytes", *file.size), fmt::format("{} bytes", attempt.done));
  }
  return ok_status();
}

Status Puller::finish_file(const RemoteFile& file, Attempt& attempt) const {
  const std::string expected = attempt.sha256 ? file.sha256 : file.git_sha1;
  std::string found = expected;
  if (attempt.sha256)
    found = attempt.sha256->finish();
  else if (attempt.git_sha1)
    found = attempt.git_sha1->finish();
  if (found != expected) {
    ::unlink(attempt.partial_path.c_str());
    ::unlink(attempt.etag_path.c_str());
    return make_error(ErrorKind::kInvalidData, "the download's checksum is wrong", file.path, expected, found,
                      "the partial file was removed; pull again");
  }
  if (::fsync(attempt.file->get()) != 0)
    return system_error("cannot write the download", attempt.partial_path);
  if (::rename(attempt.partial_path.c_str(), attempt.final_path.c_str()) != 0) {
    return system_error("cannot rename the download", attempt.final_path);
  }
  ::unlink(attempt.etag_path.c_str());
  return ok_status();
}

// True when the file is there with the size and the digest that the hub states: a second pull verifies the
// first.
bool is_intact(const RemoteFile& file, const std::string& path) {
  if (!file.size) return false;
  auto mapped = MappedFile::open(path);
  if (!mapped.ok() || mapped->size() != *file.size) return false;
  std::optional<Digest> digest;
  if (!file.sha256.empty())
    digest = Digest::sha256();
  else if (!file.git_sha1.empty())
    digest = Digest::git_blob(*file.size);
  if (!digest) return true;
  const std::span<const std::byte> bytes = mapped->bytes();
  digest->update({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  return digest->finish() == (file.sha256.empty() ? file.git_sha1 : file.sha256);
}

Result<uint64_t> Puller::fetch(const RemoteFile& file, const std::string& commit, const std::string& folder) {
  Attempt attempt;
  MLXCEL_ASSIGN_OR_RETURN(attempt.final_path, join_inside(folder, file.path));
  attempt.partial_path = attempt.final_path + ".partial";
  attempt.etag_path = attempt.partial_path + ".etag";
  MLXCEL_RETURN_IF_ERROR(make_directories(attempt.final_path.substr(0, attempt.final_path.rfind('/'))));
  if (is_intact(file, attempt.final_path)) {
    report(file, *file.size, *file.size, true);
    return uint64_t{0};
  }
  const std::string url = fmt::format("{}/{}/resolve/{}/{}", options_.endpoint, name_.repository(),
                                      encode_url_path(commit), encode_url_path(file.path));
  MLXCEL_RETURN_IF_ERROR(open_partial(file, attempt));
  report(file, attempt.done, attempt.resumed, false);
  for (int failures = 0; !(file.size && attempt.done == *file.size && attempt.done > 0);) {
    const uint64_t before = attempt.done;
    const Status status = attempt_fetch(file, url, attempt);
    if (status.ok()) break;
    const bool made_progress = attempt.done > before;
    failures = made_progress ? 1 : failures + 1;
    if (attempt.is_range_refused &&
        before > 0) {  // what we have is not of this file: once more from the start
      if (::ftruncate(attempt.file->get(), 0) != 0)
        return system_error("cannot write the download", attempt.partial_path);
      ::unlink(attempt.etag_path.c_str());
      MLXCEL_RETURN_IF_ERROR(open_partial(file, attempt));
      continue;
    }
    if (!attempt.is_transient || failures > options_.retries) return status.error();
    if (!back_off(failures, attempt.retry_after)) return make_error(ErrorKind::kCancelled, "cancelled");
  }
  MLXCEL_RETURN_IF_ERROR(finish_file(file, attempt));
  report(file, attempt.done, attempt.resumed, true);
  return attempt.received;
}

Status check_disk_space(const std::vector<RemoteFile>& files, const std::string& folder) {
  uint64_t needed = 0;
  for (const RemoteFile& file : files) {
    struct stat info {};
    const std::string path = path_join(folder, file.path);
    const bool is_there = ::stat(path.c_str(), &info) == 0 || ::stat((path + ".partial").c_str(), &info) == 0;
    const uint64_t present = is_there ? static_cast<uint64_t>(info.st_size) : 0;
    if (file.size.value_or(0) > present) needed += *file.size - present;
  }
  struct statvfs disk {};
  if (::statvfs(folder.c_str(), &disk) != 0) return system_error("cannot read the disk's free space", folder);
  const uint64_t available = static_cast<uint64_t>(disk.f_bavail) * disk.f_frsize;
  if (needed + kDiskReserveBytes <= available) return ok_status();
  return make_error(ErrorKind::kIo, "not enough space on the disk", folder,
                    fmt::format("{} MB", needed / 1'000'000), fmt::format("{} MB", available / 1'000'000),
                    "free some space or set MLXCEL_HOME to another disk");
}

Status write_manifest(const std::string& folder, const ModelName& name, const RemoteModel& model,
                      const PullOptions& options, const std::vector<RemoteFile>& files) {
  JsonArray list;
  std::vector<std::string> listed;
  const auto append = [&](const std::string& path, JsonValue size) {
    JsonObject entry;
    entry.set("path", path);
    entry.set("size", std::move(size));
    list.emplace_back(std::move(entry));
    listed.push_back(path);
  };
  for (const RemoteFile& file : files) append(file.path, file.size ? JsonValue(*file.size) : JsonValue());
  // Another quantisation pulled earlier stays part of the folder.
  if (auto old = parse_json_file(path_join(folder, kPullManifest)); old.ok()) {
    const JsonValue* entries = old->find("files");
    for (const JsonValue& entry :
         entries != nullptr && entries->is_array() ? entries->as_array() : JsonArray{}) {
      const JsonValue* path = entry.find("path");
      if (path == nullptr || !path->is_string() || !path->as_string().ends_with(".gguf")) continue;
      if (std::find(listed.begin(), listed.end(), path->as_string()) != listed.end()) continue;
      const JsonValue* size = entry.find_set("size");
      append(path->as_string(), size == nullptr ? JsonValue() : *size);
    }
  }
  JsonObject manifest;
  manifest.set("repository", name.repository());
  manifest.set("endpoint", options.endpoint);
  manifest.set("revision", options.revision);
  manifest.set("commit", model.commit);
  manifest.set("files", std::move(list));
  return write_file_atomically(path_join(folder, kPullManifest),
                               to_json(JsonValue(std::move(manifest)), {.indent = 1}));
}

Result<FileDescriptor> lock_folder(const std::string& folder) {
  const std::string path = path_join(folder, ".mlxcel-pull.lock");
  FileDescriptor lock(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (lock.get() < 0) return system_error("cannot write into the model's folder", path);
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    return make_error(ErrorKind::kIo, "another pull of this model is running", folder, "", "",
                      "wait for it to end");
  }
  return lock;
}

}  // namespace

Result<std::vector<std::string>> choose_model_files(const std::vector<std::string>& files,
                                                    const ModelName& name) {
  std::vector<std::string> gguf, plain;
  bool has_weights = false;
  for (const std::string& file : files) {
    if (file.ends_with(".gguf")) gguf.push_back(file);
    if (file.find('/') != std::string::npos && !file.starts_with("additional_chat_templates/")) continue;
    if (file.starts_with("consolidated")) continue;  // a second copy of the same weights
    const bool is_weight = file.ends_with(".safetensors");
    has_weights = has_weights || is_weight;
    if (is_weight || file.ends_with(".json") || file.ends_with(".jinja") || file == "tokenizer.model")
      plain.push_back(file);
  }
  if (name.variant.empty() && has_weights) return plain;
  if (gguf.empty()) {
    return make_error(ErrorKind::kNotFound, "the repository holds no weights we can run", name.repository(),
                      name.variant.empty() ? "*.safetensors or *.gguf" : "*.gguf", "neither");
  }
  std::vector<std::string> chosen;
  const std::string wanted = lower_case(name.variant);
  for (const std::string& file : gguf) {
    if (wanted.empty() || lower_case(file).find(wanted) != std::string::npos) chosen.push_back(file);
  }
  if (chosen.empty() || (wanted.empty() && chosen.size() > 1)) {
    return make_error(ErrorKind::kInvalidArgument,
                      chosen.empty() ? "no file has this quantisation" : "the repository has several files",
                      name.repository(), "owner/name:QUANT that picks one",
                      fmt::format("{}", fmt::join(gguf, ", ")));
  }
  return chosen;
}

Result<PullResult> pull_model(const ModelName& name, const StorePaths& paths, const PullOptions& options) {
  Puller puller(name, options);
  MLXCEL_ASSIGN_OR_RETURN(const RemoteModel model, puller.read_model());
  std::vector<std::string> names;
  for (const RemoteFile& file : model.files) names.push_back(file.path);
  MLXCEL_ASSIGN_OR_RETURN(const std::vector<std::string> chosen, choose_model_files(names, name));
  PullResult result;
  result.folder = store_folder(paths, name);
  result.commit = model.commit;
  result.files = chosen;
  std::vector<RemoteFile> files;
  for (const RemoteFile& file : model.files) {
    if (std::find(chosen.begin(), chosen.end(), file.path) == chosen.end()) continue;
    MLXCEL_RETURN_IF_ERROR(join_inside(result.folder, file.path));  // refuse before the first byte is written
    files.push_back(file);
  }
  // Small files first: a wrong tokenizer is found out before gigabytes are spent.
  std::stable_sort(files.begin(), files.end(), [](const RemoteFile& a, const RemoteFile& b) {
    return a.size.value_or(0) < b.size.value_or(0);
  });
  MLXCEL_RETURN_IF_ERROR(make_directories(result.folder));
  MLXCEL_ASSIGN_OR_RETURN(const FileDescriptor lock, lock_folder(result.folder));
  MLXCEL_RETURN_IF_ERROR(check_disk_space(files, result.folder));
  MLXCEL_RETURN_IF_ERROR(write_manifest(result.folder, name, model, options, files));
  for (const RemoteFile& file : files) {
    MLXCEL_ASSIGN_OR_RETURN(
        const uint64_t received,
        puller.fetch(file, model.commit.empty() ? options.revision : model.commit, result.folder));
    result.downloaded_bytes += received;
  }
  return result;
}

}  // namespace mlxcel
