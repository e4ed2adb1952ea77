#include "checkpoint/safetensors.h"

#include <algorithm>
#include <cstring>

#include "base/checked.h"
#include "checkpoint/json_cursor.h"

namespace mlxcel {
namespace {

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kHeaderBytesMax = 100'000'000;  // the reference implementation's limit
constexpr size_t kRankMax = 8;
constexpr std::string_view kLfsStart = "version https://git-lfs.github.com/spec/";

struct Offsets {
  uint64_t begin = 0, end = 0;
};

// What the header says about one tensor, in the order it says it.
struct HeaderEntry {
  std::optional<DType> dtype;
  std::optional<std::vector<int64_t>> shape;
  std::optional<Offsets> offsets;
};

// A tensor's place, to be sorted: the map's nodes do not move.
struct Placement {
  Offsets offsets;
  const TensorEntry* entry = nullptr;
};

class SafetensorsReader {
 public:
  SafetensorsReader(std::span<const std::byte> bytes, const std::string& where, const std::string& file,
                    TensorMap& tensors)
      : bytes_(bytes), where_(where), file_(file), tensors_(tensors) {}

  Status read();

 private:
  Result<std::string_view> header_text();
  Status read_tensor(JsonCursor& cursor, std::string name);
  Result<HeaderEntry> read_entry(JsonCursor& cursor, const std::string& name);
  Status add_tensor(std::string name, HeaderEntry entry);
  Status check_placements();
  Error tensor_error(const std::string& name, std::string what, std::string expected,
                     std::string found) const {
    return make_error(ErrorKind::kInvalidData, std::move(what), where_ + ", tensor \"" + name + "\"",
                      std::move(expected), std::move(found), "download the file again");
  }

  std::span<const std::byte> bytes_;
  const std::string& where_;
  const std::string& file_;
  TensorMap& tensors_;
  std::span<const std::byte> data_;
  std::vector<Placement> placements_;
};

Result<std::string_view> SafetensorsReader::header_text() {
  if (is_lfs_pointer(bytes_)) return lfs_pointer_error(where_);
  if (bytes_.size() < kLengthBytes) {
    return make_error(ErrorKind::kInvalidData, "not a safetensors file: too short", where_,
                      "at least 8 bytes", std::to_string(bytes_.size()) + " bytes",
                      "download the file again");
  }
  uint64_t length = 0;
  std::memcpy(&length, bytes_.data(), kLengthBytes);
  const uint64_t rest = bytes_.size() - kLengthBytes;
  if (length > rest || length > kHeaderBytesMax) {
    return make_error(ErrorKind::kInvalidData,
                      "not a safetensors file, or cut short: the header does not fit", where_,
                      "a header of at most " + std::to_string(std::min(rest, kHeaderBytesMax)) + " bytes",
                      std::to_string(length), "download the file again");
  }
  data_ = bytes_.subspan(kLengthBytes + length);
  return std::string_view(reinterpret_cast<const char*>(bytes_.data()) + kLengthBytes, length);
}

Result<HeaderEntry> SafetensorsReader::read_entry(JsonCursor& cursor, const std::string& name) {
  HeaderEntry entry;
  const auto read_dtype = [&]() -> Status {
    MLXCEL_ASSIGN_OR_RETURN(const std::string text, cursor.string(32));
    entry.dtype = dtype_from_safetensors(text);
    if (!entry.dtype)
      return tensor_error(name, "unknown element type", "F32, F16, BF16, U32, F8_E4M3, ...", text);
    return ok_status();
  };
  const auto read_shape = [&]() -> Status {
    entry.shape.emplace();
    return cursor.array([&]() -> Status {
      MLXCEL_ASSIGN_OR_RETURN(const uint64_t dimension, cursor.unsigned_integer());
      if (entry.shape->size() == kRankMax || dimension > (uint64_t{1} << 62)) {
        return tensor_error(name, "shape out of range", "at most 8 dimensions below 2^62",
                            std::to_string(dimension));
      }
      entry.shape->push_back(static_cast<int64_t>(dimension));
      return ok_status();
    });
  };
  const auto read_offsets = [&]() -> Status {
    uint64_t values[2] = {0, 0};
    size_t count = 0;
    MLXCEL_RETURN_IF_ERROR(cursor.array([&]() -> Status {
      MLXCEL_ASSIGN_OR_RETURN(const uint64_t value, cursor.unsigned_integer());
      if (count == 2) return cursor.error_here("two data offsets");
      values[count++] = value;
      return ok_status();
    }));
    if (count != 2) return cursor.error_here("two data offsets");
    entry.offsets = Offsets{values[0], values[1]};
    return ok_status();
  };
  MLXCEL_RETURN_IF_ERROR(cursor.object([&](const std::string& key) -> Status {
    if (key == "dtype" && !entry.dtype) return read_dtype();
    if (key == "shape" && !entry.shape) return read_shape();
    if (key == "data_offsets" && !entry.offsets) return read_offsets();
    return tensor_error(name, "unknown or repeated key in the header", "dtype, shape and data_offsets once",
                        key);
  }));
  return entry;
}

Status SafetensorsReader::add_tensor(std::string name, HeaderEntry header) {
  if (!header.dtype || !header.shape || !header.offsets) {
    return tensor_error(name, "incomplete header", "dtype, shape and data_offsets", "fewer keys");
  }
  const Offsets offsets = *header.offsets;
  if (offsets.begin > offsets.end || offsets.end > data_.size()) {
    return tensor_error(name, "data lies outside the file",
                        "offsets within 0.." + std::to_string(data_.size()),
                        std::to_string(offsets.begin) + ".." + std::to_string(offsets.end));
  }
  const auto elements = checked_product(*header.shape);
  const auto size =
      elements ? checked_mul(static_cast<uint64_t>(*elements), dtype_size(*header.dtype)) : std::nullopt;
  if (size != offsets.end - offsets.begin) {
    return tensor_error(name, "data size disagrees with the shape",
                        size ? std::to_string(*size) + " bytes" : "a size below 2^62",
                        std::to_string(offsets.end - offsets.begin) + " bytes");
  }
  const auto [node, is_new] = tensors_.try_emplace(name);
  if (!is_new)
    return tensor_error(name, "tensor name is used twice", "unique names", "also in " + node->second.file);
  TensorEntry& entry = node->second;
  entry.name = std::move(name);
  entry.shape = std::move(*header.shape);
  entry.dtype = *header.dtype;
  entry.data = data_.subspan(offsets.begin, offsets.end - offsets.begin);
  entry.file = file_;
  placements_.push_back({offsets, &entry});
  return ok_status();
}

Status SafetensorsReader::read_tensor(JsonCursor& cursor, std::string name) {
  if (name == "__metadata__") return cursor.skip_value();
  if (name.empty() || name.size() > kTensorNameBytesMax)
    return cursor.error_here("a tensor name of 1 to 1024 bytes");
  if (tensors_.size() >= kTensorsMax) {
    return make_error(ErrorKind::kResourceExhausted, "too many tensors", where_,
                      "at most " + std::to_string(kTensorsMax) + " in all files", "more");
  }
  MLXCEL_ASSIGN_OR_RETURN(HeaderEntry entry, read_entry(cursor, name));
  return add_tensor(std::move(name), std::move(entry));
}

Status SafetensorsReader::check_placements() {
  std::sort(placements_.begin(), placements_.end(), [](const Placement& a, const Placement& b) {
    return std::pair(a.offsets.begin, a.offsets.end) < std::pair(b.offsets.begin, b.offsets.end);
  });
  uint64_t position = 0;
  for (const Placement& placement : placements_) {
    if (placement.offsets.begin != position) {
      return tensor_error(
          placement.entry->name,
          placement.offsets.begin < position ? "data overlaps another tensor's" : "a hole before the data",
          "data from offset " + std::to_string(position), std::to_string(placement.offsets.begin));
    }
    position = placement.offsets.end;
  }
  if (position != data_.size()) {
    return make_error(ErrorKind::kInvalidData, "bytes that belong to no tensor at the end of the file",
                      where_, std::to_string(position) + " bytes of tensors",
                      std::to_string(data_.size()) + " bytes", "download the file again");
  }
  return ok_status();
}

Status SafetensorsReader::read() {
  MLXCEL_ASSIGN_OR_RETURN(const std::string_view text, header_text());
  JsonCursor cursor(text, where_ + " (header)");
  MLXCEL_RETURN_IF_ERROR(
      cursor.object([&](std::string name) { return read_tensor(cursor, std::move(name)); }));
  MLXCEL_RETURN_IF_ERROR(cursor.end());
  return check_placements();
}

}  // namespace

bool is_lfs_pointer(std::span<const std::byte> bytes) {
  return bytes.size() >= kLfsStart.size() &&
         std::memcmp(bytes.data(), kLfsStart.data(), kLfsStart.size()) == 0;
}

Error lfs_pointer_error(const std::string& where) {
  return make_error(ErrorKind::kInvalidData, "the file is a Git LFS pointer, not the data", where,
                    "the file itself", "a text of a few lines",
                    "run `git lfs pull` in the folder, or download the file again");
}

Status read_safetensors(std::span<const std::byte> bytes, const std::string& where, const std::string& file,
                        TensorMap& tensors) {
  return SafetensorsReader(bytes, where, file, tensors).read();
}

}  // namespace mlxcel
