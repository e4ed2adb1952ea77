// Builders of small safetensors and GGUF files, and a folder that is removed again: for the tests of this
// folder. Owner: the test. Threads: one.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file.h"
#include "checkpoint/checkpoint.h"

namespace mlxcel {

class TemporaryFolder {
 public:
  explicit TemporaryFolder(const std::string& name)
      : path_((std::filesystem::temp_directory_path() / (name + "-" + std::to_string(::getpid()))).string()) {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }
  std::string file(std::string_view name) const { return path_join(path_, name); }
  // In place and without syncing: tests write thousands of files.
  void write(std::string_view name, std::string_view contents) const {
    std::ofstream stream(file(name), std::ios::binary | std::ios::trunc);
    stream.write(contents.data(), static_cast<std::streamsize>(contents.size()));
    MLXCEL_CHECK(stream.flush().good());
  }

 private:
  std::string path_;
};

inline std::span<const std::byte> as_byte_span(std::string_view text) {
  return std::as_bytes(std::span(text));
}

template <typename T>
std::string bytes_of(T value) {
  std::string bytes(sizeof(T), '\0');
  std::memcpy(bytes.data(), &value, sizeof(T));
  return bytes;
}

// A safetensors file from a header text and data.
inline std::string safetensors_file(std::string_view header, std::string_view data) {
  return bytes_of(uint64_t{header.size()}) + std::string(header) + std::string(data);
}

// A GGUF file piece by piece; counts are what was added unless set.
class GgufBuilder {
 public:
  uint32_t version = 3;
  uint64_t alignment = 32;
  std::string data;

  static std::string text(std::string_view s) { return bytes_of(uint64_t{s.size()}) + std::string(s); }
  // `payload` starts after the value type.
  GgufBuilder& key(std::string_view name, uint32_t type, std::string_view payload) {
    metadata_ += text(name) + bytes_of(type) + std::string(payload);
    ++keys_;
    return *this;
  }
  GgufBuilder& tensor(std::string_view name, std::vector<uint64_t> dims, uint32_t type, uint64_t offset) {
    tensors_ += text(name) + bytes_of(static_cast<uint32_t>(dims.size()));
    for (const uint64_t d : dims) tensors_ += bytes_of(d);
    tensors_ += bytes_of(type) + bytes_of(offset);
    ++count_;
    return *this;
  }
  GgufBuilder& counts(uint64_t tensors, uint64_t keys) {
    count_ = tensors;
    keys_ = keys;
    return *this;
  }
  std::string build() const {
    std::string file = "GGUF" + bytes_of(version) + bytes_of(count_) + bytes_of(keys_) + metadata_ + tensors_;
    if (!data.empty()) file.resize((file.size() + alignment - 1) / alignment * alignment, '\0');
    return file + data;
  }

 private:
  std::string metadata_, tensors_;
  uint64_t keys_ = 0, count_ = 0;
};

}  // namespace mlxcel
