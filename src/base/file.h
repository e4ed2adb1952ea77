// Files as read-only bytes. A MappedFile is a private read-only mapping of a regular file whose size was
// taken when it was opened; every reader checks offsets against size().
//
// Owner: moves only; the mapping ends with the object. Threads: reading the bytes is free for all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace mlxcel {

class MappedFile {
 public:
  MappedFile() = default;
  static Result<MappedFile> open(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  uint64_t size() const { return size_; }
  const std::string& path() const { return path_; }
  // Tells the kernel that these bytes were read for the last time (drops them from this process, not the
  // cache).
  void release(uint64_t offset, uint64_t size) const;
  // Tells the kernel that these bytes will be read soon, in order.
  void will_need(uint64_t offset, uint64_t size) const;

 private:
  const std::byte* data_ = nullptr;
  uint64_t size_ = 0;
  std::string path_;
};

// The whole file; kInvalidData when it is larger than max_bytes.
Result<std::string> read_file(const std::string& path, uint64_t max_bytes = uint64_t{1} << 30);
// Where writing to `path` ends: links followed. kInvalidArgument for anything that exists and is no regular
// file (renaming over a device or a pipe would replace it).
Result<std::string> writable_target(const std::string& path);
// Writes to a temporary file beside the target, syncs, renames.
Status write_file_atomically(const std::string& path, std::string_view contents);
bool file_exists(const std::string& path);  // a regular file (links followed)
bool directory_exists(const std::string& path);
// Names in a directory (no "." and ".."), sorted bytewise.
Result<std::vector<std::string>> list_directory(const std::string& path);
Status make_directories(const std::string& path);
// `parts` joined with '/'; an absolute or escaping (..) `relative` is an error: for names read from untrusted
// files.
Result<std::string> join_inside(const std::string& directory, std::string_view relative);
std::string path_join(std::string_view a, std::string_view b);
std::string_view path_basename(std::string_view path);

}  // namespace mlxcel
