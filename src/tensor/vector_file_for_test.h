// Golden vectors for tests of this folder: the tensors of one safetensors file, read without the checkpoint
// layer (which lies above this one). The file is ours and trusted; anything unexpected ends the test program.
// Owner: the test. Threads: one.
#pragma once

#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "tensor/dtype.h"

namespace mlxcel {

class VectorFile {
 public:
  explicit VectorFile(const std::string& name)
      : file_(MappedFile::open(std::string(MLXCEL_SOURCE_DIR) + "/tests/data/models/" + name).value()) {
    uint64_t header_size = 0;
    std::memcpy(&header_size, file_.bytes().data(), 8);
    data_ = file_.bytes().subspan(8 + header_size);
    const auto* text = reinterpret_cast<const char*>(file_.bytes().data()) + 8;
    header_ = parse_json({text, header_size}, name).value();
  }

  bool has(const std::string& name) const { return header_.find(name) != nullptr; }
  const JsonValue& header() const { return header_; }
  std::span<const std::byte> bytes(const std::string& name) const {
    const JsonArray& offsets = entry(name).find("data_offsets")->as_array();
    const auto begin = static_cast<size_t>(offsets[0].as_int()),
               end = static_cast<size_t>(offsets[1].as_int());
    return data_.subspan(begin, end - begin);
  }
  int64_t dimension(const std::string& name, size_t index) const {
    return entry(name).find("shape")->as_array()[index].as_int();
  }
  DType dtype(const std::string& name) const {
    return *dtype_from_safetensors(entry(name).find("dtype")->as_string());
  }
  std::vector<float> floats(const std::string& name) const {
    const auto raw = bytes(name);
    std::vector<float> values(raw.size() / sizeof(float));
    std::memcpy(values.data(), raw.data(), values.size() * sizeof(float));
    return values;
  }

 private:
  const JsonValue& entry(const std::string& name) const {
    const JsonValue* found = header_.find(name);
    MLXCEL_CHECK_MSG(found != nullptr, name);
    return *found;
  }
  MappedFile file_;
  std::span<const std::byte> data_;
  JsonValue header_;
};

}  // namespace mlxcel
