#include "checkpoint/gguf.h"

#include <algorithm>

#include "base/checked.h"
#include "checkpoint/gguf_metadata.h"

namespace mlxcel {
namespace {

constexpr std::string_view kMagic = "GGUF";
constexpr uint32_t kVersionMin = 2, kVersionMax = 3;
constexpr uint64_t kMetadataKeysMax = 65536;
constexpr uint64_t kKeyBytesMax = 65535;           // the specification's limit
constexpr uint64_t kKeyValueBytesMin = 8 + 4 + 1;  // empty key, type, one byte of value
constexpr uint64_t kTensorBytesMin = 8 + 4 + 8 + 4 + 8;
constexpr uint32_t kRankMax = 4;
constexpr int64_t kAlignmentDefault = 32, kAlignmentMax = 1 << 20;
constexpr std::string_view kAlignmentKey = "general.alignment";

// The element type of a plain tensor; nullopt for block formats.
std::optional<DType> plain_type(GgufType type) {
  switch (type) {
    case GgufType::kF32:
      return DType::kF32;
    case GgufType::kF16:
      return DType::kF16;
    case GgufType::kBF16:
      return DType::kBF16;
    case GgufType::kF64:
      return DType::kF64;
    case GgufType::kI8:
      return DType::kI8;
    case GgufType::kI16:
      return DType::kI16;
    case GgufType::kI32:
      return DType::kI32;
    case GgufType::kI64:
      return DType::kI64;
    default:
      return std::nullopt;
  }
}

// Positions in a file are far below 2^63, so this cannot overflow.
uint64_t round_up_to(uint64_t position, uint64_t unit) { return (position + unit - 1) / unit * unit; }

struct Placement {
  uint64_t offset = 0, size = 0;
  TensorEntry* entry = nullptr;
};

class GgufReader {
 public:
  GgufReader(std::span<const std::byte> bytes, const std::string& where, const std::string& file)
      : bytes_(bytes), reader_(bytes, where), where_(where), file_(file) {}

  Result<GgufContents> read();

 private:
  struct Counts {
    uint64_t tensors = 0, keys = 0;
  };
  Result<Counts> read_header();
  Status read_metadata(uint64_t count);
  Status read_tensor();
  Result<std::vector<int64_t>> read_shape(const std::string& what);
  Result<uint64_t> alignment() const;
  Status place_tensors();

  std::span<const std::byte> bytes_;
  GgufMetadataReader reader_;
  const std::string& where_;
  const std::string& file_;
  GgufContents contents_;
  std::vector<Placement> placements_;
};

Result<GgufReader::Counts> GgufReader::read_header() {
  if (is_lfs_pointer(bytes_)) return lfs_pointer_error(where_);
  MLXCEL_ASSIGN_OR_RETURN(const uint32_t magic, reader_.u32("magic"));
  if (std::memcmp(&magic, kMagic.data(), kMagic.size()) != 0) {
    return reader_.error("magic", "not a GGUF file", "\"GGUF\"", std::to_string(magic));
  }
  MLXCEL_ASSIGN_OR_RETURN(const uint32_t version, reader_.u32("version"));
  if (version < kVersionMin || version > kVersionMax) {
    const bool is_swapped = version != 0 && (version & 0xFFFFu) == 0;
    return make_error(ErrorKind::kUnsupported, "GGUF version not supported", where_, "version 2 or 3",
                      is_swapped ? "a big-endian file" : "version " + std::to_string(version),
                      "convert the model with a current converter");
  }
  Counts counts;
  MLXCEL_ASSIGN_OR_RETURN(counts.tensors, reader_.u64("number of tensors"));
  MLXCEL_ASSIGN_OR_RETURN(counts.keys, reader_.u64("number of metadata keys"));
  const uint64_t tensors_max = std::min<uint64_t>(kTensorsMax, reader_.remaining() / kTensorBytesMin);
  const uint64_t keys_max = std::min(kMetadataKeysMax, reader_.remaining() / kKeyValueBytesMin);
  if (counts.tensors > tensors_max) {
    return reader_.error("number of tensors", "count out of range", "at most " + std::to_string(tensors_max),
                         std::to_string(counts.tensors));
  }
  if (counts.keys > keys_max) {
    return reader_.error("number of metadata keys", "count out of range",
                         "at most " + std::to_string(keys_max), std::to_string(counts.keys));
  }
  return counts;
}

Status GgufReader::read_metadata(uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) {
    MLXCEL_ASSIGN_OR_RETURN(const std::string_view key, reader_.string("metadata key", kKeyBytesMax));
    std::string name(key);
    MLXCEL_ASSIGN_OR_RETURN(GgufValue value, reader_.value("metadata key \"" + name + "\""));
    if (!contents_.metadata.emplace(std::move(name), std::move(value)).second) {
      return reader_.error("metadata key \"" + std::string(key) + "\"", "key is used twice", "unique keys",
                           "another");
    }
  }
  return ok_status();
}

// Slowest dimension first: the file has them the other way round.
Result<std::vector<int64_t>> GgufReader::read_shape(const std::string& what) {
  MLXCEL_ASSIGN_OR_RETURN(const uint32_t rank, reader_.u32(what));
  if (rank == 0 || rank > kRankMax) {
    return reader_.error(what, "number of dimensions out of range", "1 to 4", std::to_string(rank));
  }
  std::vector<int64_t> shape(rank);
  for (uint32_t i = 0; i < rank; ++i) {
    MLXCEL_ASSIGN_OR_RETURN(const uint64_t dimension, reader_.u64(what));
    if (dimension == 0 || dimension > (uint64_t{1} << 62)) {
      return reader_.error(what, "dimension out of range", "1 to 2^62", std::to_string(dimension));
    }
    shape[rank - 1 - i] = static_cast<int64_t>(dimension);
  }
  return shape;
}

Status GgufReader::read_tensor() {
  MLXCEL_ASSIGN_OR_RETURN(const std::string_view text, reader_.string("tensor name", kTensorNameBytesMax));
  std::string name(text);
  const std::string what = "tensor \"" + name + "\"";
  MLXCEL_ASSIGN_OR_RETURN(std::vector<int64_t> shape, read_shape(what));
  MLXCEL_ASSIGN_OR_RETURN(const uint32_t type_number, reader_.u32(what));
  MLXCEL_ASSIGN_OR_RETURN(const uint64_t offset, reader_.u64(what));
  const auto type = static_cast<GgufType>(type_number);
  const auto info = gguf_type_info(type);
  if (!info)
    return reader_.error(what, "unknown tensor type", "a GGML type number", std::to_string(type_number));
  const auto elements = checked_product(shape);
  if (!elements || shape.back() % info->block_elements != 0) {
    return reader_.error(what, "shape does not fit the tensor type",
                         "rows of whole blocks of " + std::to_string(info->block_elements) + " elements",
                         std::to_string(shape.back()) + " columns of " + std::string(info->name));
  }
  const auto size = checked_mul(static_cast<uint64_t>(*elements) / info->block_elements, info->block_bytes);
  if (!size) return reader_.error(what, "tensor too large", "below 2^64 bytes", "more");
  const auto [node, is_new] = contents_.tensors.try_emplace(name);
  if (!is_new) return reader_.error(what, "tensor name is used twice", "unique names", "another");
  TensorEntry& entry = node->second;
  entry.name = std::move(name);
  entry.shape = std::move(shape);
  entry.gguf_type = type;
  entry.dtype = plain_type(type).value_or(DType::kU8);
  entry.file = file_;
  placements_.push_back({offset, *size, &entry});
  return ok_status();
}

Result<uint64_t> GgufReader::alignment() const {
  const auto found = contents_.metadata.find(kAlignmentKey);
  if (found == contents_.metadata.end()) return uint64_t{kAlignmentDefault};
  const int64_t* value = found->second.integer();
  if (value == nullptr || *value < 1 || *value > kAlignmentMax || (*value & (*value - 1)) != 0) {
    return reader_.error("metadata key \"general.alignment\"", "alignment out of range",
                         "a power of two up to 2^20",
                         value == nullptr ? "another type" : std::to_string(*value));
  }
  return static_cast<uint64_t>(*value);
}

Status GgufReader::place_tensors() {
  MLXCEL_ASSIGN_OR_RETURN(const uint64_t unit, alignment());
  const uint64_t data_begin = round_up_to(reader_.position(), unit);
  const uint64_t data_size = data_begin <= bytes_.size() ? bytes_.size() - data_begin : 0;
  std::sort(placements_.begin(), placements_.end(), [](const Placement& a, const Placement& b) {
    return std::pair(a.offset, a.size) < std::pair(b.offset, b.size);
  });
  uint64_t end = 0;
  for (const Placement& p : placements_) {
    const std::string what = "tensor \"" + p.entry->name + "\"";
    if (p.offset % unit != 0) {
      return reader_.error(what, "data is not aligned", "a multiple of " + std::to_string(unit),
                           std::to_string(p.offset));
    }
    if (p.offset > data_size || p.size > data_size - p.offset) {
      return reader_.error(what, "data lies outside the file",
                           "at most " + std::to_string(data_size) + " bytes of data",
                           std::to_string(p.size) + " bytes at offset " + std::to_string(p.offset));
    }
    const uint64_t expected = round_up_to(end, unit);
    if (p.offset != expected) {
      return reader_.error(what, p.offset < end ? "data overlaps another tensor's" : "a hole before the data",
                           "data from offset " + std::to_string(expected), std::to_string(p.offset));
    }
    p.entry->data = bytes_.subspan(data_begin + p.offset, p.size);
    end = p.offset + p.size;
  }
  if (data_size > round_up_to(end, unit)) {
    return reader_.error("end of the file", "bytes that belong to no tensor",
                         std::to_string(end) + " bytes of data", std::to_string(data_size) + " bytes");
  }
  return ok_status();
}

Result<GgufContents> GgufReader::read() {
  MLXCEL_ASSIGN_OR_RETURN(const Counts counts, read_header());
  MLXCEL_RETURN_IF_ERROR(read_metadata(counts.keys));
  const auto split = contents_.metadata.find("split.count");
  if (split != contents_.metadata.end() && split->second.integer() != nullptr &&
      *split->second.integer() > 1) {
    return make_error(ErrorKind::kUnsupported, "the model is split over several GGUF files", where_,
                      "one file", std::to_string(*split->second.integer()) + " files",
                      "join them with llama-gguf-split --merge");
  }
  for (uint64_t i = 0; i < counts.tensors; ++i) MLXCEL_RETURN_IF_ERROR(read_tensor());
  MLXCEL_RETURN_IF_ERROR(place_tensors());
  return std::move(contents_);
}

}  // namespace

bool has_gguf_magic(std::span<const std::byte> bytes) {
  return bytes.size() >= kMagic.size() && std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) == 0;
}

Result<GgufContents> read_gguf(std::span<const std::byte> bytes, const std::string& where,
                               const std::string& file) {
  return GgufReader(bytes, where, file).read();
}

}  // namespace mlxcel
