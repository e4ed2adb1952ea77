#include "base/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

namespace mlxcel {

namespace {

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

std::string system_text(int code) { return std::error_code(code, std::generic_category()).message(); }

Error system_error(std::string what, const std::string& path, int code) {
  const ErrorKind kind = code == ENOENT || code == ENOTDIR ? ErrorKind::kNotFound : ErrorKind::kIo;
  return make_error(kind, std::move(what), path, {}, system_text(code));
}

Result<uint64_t> size_of_regular_file(int fd, const std::string& path) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return system_error("cannot read the file's size", path, errno);
  if (!S_ISREG(info.st_mode)) {
    return make_error(ErrorKind::kInvalidData, "not a regular file", path, "a regular file",
                      S_ISDIR(info.st_mode) ? "a directory" : "a device, pipe or socket");
  }
  return static_cast<uint64_t>(info.st_size);
}

}  // namespace

Result<MappedFile> MappedFile::open(const std::string& path) {
  const Descriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0) return system_error("cannot open file", path, errno);
  MLXCEL_ASSIGN_OR_RETURN(const uint64_t size, size_of_regular_file(fd.get(), path));
  MappedFile file;
  file.path_ = path;
  file.size_ = size;
  if (size == 0) return file;
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (data == MAP_FAILED) return system_error("cannot map file", path, errno);
  file.data_ = static_cast<const std::byte*>(data);
  return file;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      path_(std::move(other.path_)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  if (this != &other) {
    if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
    path_ = std::move(other.path_);
  }
  return *this;
}

namespace {
// Advises on the whole pages inside [offset, offset + size).
void advise(const std::byte* data, uint64_t file_size, uint64_t offset, uint64_t size, int advice) {
  if (data == nullptr || offset >= file_size) return;
  const uint64_t page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  const uint64_t end = std::min(file_size, offset + std::min(size, file_size));
  const uint64_t first = (offset + page - 1) / page * page, last = end == file_size ? end : end / page * page;
  if (first < last) ::madvise(const_cast<std::byte*>(data) + first, last - first, advice);
}
}  // namespace

void MappedFile::release(uint64_t offset, uint64_t size) const {
  advise(data_, size_, offset, size, MADV_DONTNEED);
}
void MappedFile::will_need(uint64_t offset, uint64_t size) const {
  advise(data_, size_, offset, size, MADV_WILLNEED);
}

Result<std::string> read_file(const std::string& path, uint64_t max_bytes) {
  const Descriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0) return system_error("cannot open file", path, errno);
  MLXCEL_ASSIGN_OR_RETURN(const uint64_t size, size_of_regular_file(fd.get(), path));
  if (size > max_bytes) {
    return make_error(ErrorKind::kInvalidData, "file is too large", path,
                      fmt::format("at most {} bytes", max_bytes), fmt::format("{} bytes", size));
  }
  // Files of /proc and /sys say size 0 and have contents all the same, so the end is where read() says it is.
  std::string text(std::max<uint64_t>(size, 4096), '\0');
  size_t done = 0;
  for (;;) {
    if (done == text.size()) {
      if (done > max_bytes) break;
      text.resize(text.size() * 2);
    }
    const ssize_t n = ::read(fd.get(), text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return system_error("cannot read file", path, errno);
    if (n == 0) break;
    done += static_cast<size_t>(n);
  }
  if (done > max_bytes) {
    return make_error(ErrorKind::kInvalidData, "file is too large", path,
                      fmt::format("at most {} bytes", max_bytes));
  }
  text.resize(done);
  return text;
}

Result<std::string> writable_target(const std::string& path) {
  std::error_code code;
  const std::filesystem::path real = std::filesystem::weakly_canonical(path, code);
  const std::string target = code || real.empty() ? path : real.string();
  struct stat info {};
  if (::stat(target.c_str(), &info) != 0 || S_ISREG(info.st_mode)) return target;
  return make_error(ErrorKind::kInvalidArgument, "cannot write there", path, "a file",
                    S_ISDIR(info.st_mode) ? "a directory" : "a device, pipe or socket");
}

Status write_file_atomically(const std::string& given, std::string_view contents) {
  MLXCEL_ASSIGN_OR_RETURN(const std::string path, writable_target(given));
  const std::string temporary = fmt::format("{}.tmp.{}", path, ::getpid());
  {
    const Descriptor fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    if (fd.get() < 0) return system_error("cannot create file", temporary, errno);
    size_t done = 0;
    while (done < contents.size()) {
      const ssize_t n = ::write(fd.get(), contents.data() + done, contents.size() - done);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) {
        const int code = errno;
        ::unlink(temporary.c_str());
        return system_error("cannot write file", temporary, code);
      }
      done += static_cast<size_t>(n);
    }
    if (::fsync(fd.get()) != 0) return system_error("cannot write file", temporary, errno);
  }
  if (::rename(temporary.c_str(), path.c_str()) != 0) {
    const int code = errno;
    ::unlink(temporary.c_str());
    return system_error("cannot rename file", path, code);
  }
  return ok_status();
}

bool file_exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored);
}

bool directory_exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored);
}

Result<std::vector<std::string>> list_directory(const std::string& path) {
  std::error_code code;
  std::vector<std::string> names;
  std::filesystem::directory_iterator it(path, code);
  if (code) return system_error("cannot list directory", path, code.value());
  for (const std::filesystem::directory_iterator end; it != end; it.increment(code)) {
    if (code) return system_error("cannot list directory", path, code.value());
    names.push_back(it->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

Status make_directories(const std::string& path) {
  std::error_code code;
  std::filesystem::create_directories(path, code);
  if (code) return system_error("cannot create directory", path, code.value());
  return ok_status();
}

Result<std::string> join_inside(const std::string& directory, std::string_view relative) {
  const auto refuse = [&] {
    return make_error(ErrorKind::kInvalidData, "file name leaves its folder", directory,
                      "a name inside the folder", fmt::format("\"{}\"", relative));
  };
  if (relative.empty() || relative.front() == '/' || relative.find('\0') != std::string_view::npos)
    return refuse();
  for (size_t begin = 0; begin <= relative.size();) {
    const size_t slash = std::min(relative.find('/', begin), relative.size());
    const std::string_view part = relative.substr(begin, slash - begin);
    if (part.empty() || part == "." || part == "..") return refuse();
    begin = slash + 1;
  }
  return path_join(directory, relative);
}

std::string path_join(std::string_view a, std::string_view b) {
  if (a.empty()) return std::string(b);
  std::string out(a);
  if (out.back() != '/') out.push_back('/');
  out.append(b);
  return out;
}

std::string_view path_basename(std::string_view path) {
  while (path.size() > 1 && path.back() == '/') path.remove_suffix(1);
  const size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

}  // namespace mlxcel
