// Tensors of a checkpoint as matrices and vectors: which companion tensors belong to one, and whether all
// sizes agree.
#include "base/checked.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/quantisation.h"

namespace mlxcel {
namespace {

constexpr int64_t kFp8Block = 128;
constexpr std::string_view kWeightSuffix = ".weight";

std::string shape_text(std::span<const int64_t> shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return text + "]";
}

Error tensor_error(const Checkpoint& checkpoint, std::string_view name, std::string what,
                   std::string expected, std::string found, ErrorKind kind = ErrorKind::kInvalidData) {
  return make_error(kind, std::move(what), checkpoint.path + ", tensor \"" + std::string(name) + "\"",
                    std::move(expected), std::move(found));
}

Result<const TensorEntry*> require(const Checkpoint& checkpoint, std::string_view name) {
  const TensorEntry* entry = checkpoint.find(name);
  if (entry == nullptr)
    return tensor_error(checkpoint, name, "tensor is missing", "a tensor of this name", "none");
  return entry;
}

bool is_float(DType type) { return type == DType::kF32 || type == DType::kF16 || type == DType::kBF16; }

// One matrix of a tensor: all of a 2-D one, or one slice of a stack.
struct Slice {
  int64_t rows = 0, columns = 0;  // of elements as stored (words for packed codes)
  std::span<const std::byte> data;
};

Result<Slice> slice_of(const Checkpoint& checkpoint, const TensorEntry& entry, std::optional<int> expert) {
  const size_t rank = expert ? 3 : 2;
  if (entry.shape.size() != rank || entry.data.empty()) {
    return tensor_error(checkpoint, entry.name, "wrong shape",
                        expert ? "[experts, rows, columns]" : "[rows, columns]", shape_text(entry.shape));
  }
  if (!expert) return Slice{entry.shape[0], entry.shape[1], entry.data};
  if (*expert < 0 || *expert >= entry.shape[0]) {
    return tensor_error(checkpoint, entry.name, "expert out of range",
                        "0 to " + std::to_string(entry.shape[0] - 1), std::to_string(*expert));
  }
  // The data was checked to be the product of the shape times the element size, so it divides evenly.
  const uint64_t bytes = entry.data.size() / static_cast<uint64_t>(entry.shape[0]);
  return Slice{entry.shape[1], entry.shape[2],
               entry.data.subspan(static_cast<uint64_t>(*expert) * bytes, bytes)};
}

// A companion of `name` (scales, biases) with the shape that belongs to it.
struct Companion {
  std::string name;
  int64_t rows = 0, columns = 0;
};
Result<const TensorEntry*> find_companion(const Checkpoint& checkpoint, const Companion& companion,
                                          std::optional<int> expert, std::span<const std::byte>& data) {
  MLXCEL_ASSIGN_OR_RETURN(const TensorEntry* entry, require(checkpoint, companion.name));
  MLXCEL_ASSIGN_OR_RETURN(const Slice slice, slice_of(checkpoint, *entry, expert));
  if (slice.rows != companion.rows || slice.columns != companion.columns) {
    const int64_t expected[] = {companion.rows, companion.columns}, found[] = {slice.rows, slice.columns};
    return tensor_error(checkpoint, companion.name, "wrong shape", shape_text(expected), shape_text(found));
  }
  data = slice.data;
  return entry;
}

struct Request {
  const Checkpoint& checkpoint;
  const TensorEntry& entry;
  std::string base;  // name without ".weight"
  std::optional<int> expert;
};

Result<WeightMatrix> load_mlx(const Request& request, const MlxQuantisation& quantisation) {
  const auto& [checkpoint, entry, base, expert] = request;
  if (entry.dtype != DType::kU32) {
    return tensor_error(checkpoint, entry.name, "wrong element type for a quantised tensor", "u32",
                        std::string(dtype_name(entry.dtype)));
  }
  MLXCEL_ASSIGN_OR_RETURN(const Slice slice, slice_of(checkpoint, entry, expert));
  const auto bits = checked_mul(static_cast<uint64_t>(slice.columns), 32);
  const auto code_bits = static_cast<uint64_t>(quantisation.bits);
  const bool is_whole = bits && *bits % (code_bits * static_cast<uint64_t>(quantisation.group_size)) == 0;
  if (!is_whole) {
    return tensor_error(checkpoint, entry.name, "packed row does not hold whole groups",
                        "groups of " + std::to_string(quantisation.group_size) + " codes of " +
                            std::to_string(quantisation.bits) + " bits",
                        std::to_string(slice.columns) + " words");
  }
  WeightMatrix matrix;
  matrix.name = entry.name;
  matrix.rows = slice.rows;
  matrix.columns = static_cast<int64_t>(*bits / code_bits);
  matrix.data = slice.data;
  WeightFormat& format = matrix.format;
  format.bits = quantisation.bits;
  format.group_size = quantisation.group_size;
  format.mlx_mode = quantisation.mode;
  const int64_t groups = matrix.columns / quantisation.group_size;
  const Companion scales_name{base + ".scales", matrix.rows, groups},
      biases_name{base + ".biases", matrix.rows, groups};
  MLXCEL_ASSIGN_OR_RETURN(const TensorEntry* scales,
                          find_companion(checkpoint, scales_name, expert, matrix.scales));
  if (quantisation.mode != MlxMode::kAffine) {
    format.kind = WeightKind::kMlxFloat;
    if (scales->dtype == DType::kU8) return matrix;
    return tensor_error(checkpoint, scales->name, "wrong element type", "u8",
                        std::string(dtype_name(scales->dtype)));
  }
  format.kind = WeightKind::kMlxAffine;
  format.dtype = scales->dtype;
  MLXCEL_ASSIGN_OR_RETURN(const TensorEntry* biases,
                          find_companion(checkpoint, biases_name, expert, matrix.biases));
  if (!is_float(scales->dtype) || biases->dtype != scales->dtype) {
    return tensor_error(checkpoint, biases->name, "wrong element type",
                        "f32, f16 or bf16, the same as the scales",
                        std::string(dtype_name(scales->dtype)) + " scales and " +
                            std::string(dtype_name(biases->dtype)) + " biases");
  }
  return matrix;
}

Result<WeightMatrix> load_fp8(const Request& request) {
  const auto& [checkpoint, entry, base, expert] = request;
  if (!is_fp8_block_checkpoint(checkpoint)) {
    return tensor_error(checkpoint, entry.name,
                        "fp8 tensor in a model whose config.json declares no fp8 quantisation",
                        "quantization_config with quant_method fp8", "none", ErrorKind::kUnsupported);
  }
  MLXCEL_ASSIGN_OR_RETURN(const Slice slice, slice_of(checkpoint, entry, expert));
  WeightMatrix matrix;
  matrix.name = entry.name;
  matrix.format.kind = WeightKind::kFp8Block;
  matrix.rows = slice.rows;
  matrix.columns = slice.columns;
  matrix.data = slice.data;
  const Companion name{base + ".weight_scale_inv", ceil_div(matrix.rows, kFp8Block),
                       ceil_div(matrix.columns, kFp8Block)};
  MLXCEL_ASSIGN_OR_RETURN(const TensorEntry* scales, find_companion(checkpoint, name, expert, matrix.scales));
  if (!is_float(scales->dtype)) {
    return tensor_error(checkpoint, scales->name, "wrong element type", "f32, f16 or bf16",
                        std::string(dtype_name(scales->dtype)));
  }
  matrix.format.dtype = scales->dtype;
  return matrix;
}

Result<WeightMatrix> load_plain_or_gguf(const Request& request) {
  const auto& [checkpoint, entry, base, expert] = request;
  const auto info = entry.gguf_type ? gguf_type_info(*entry.gguf_type) : std::nullopt;
  const bool is_block = info && info->block_elements > 1;
  if (!is_block && !is_float(entry.dtype)) {
    return tensor_error(checkpoint, entry.name, "wrong element type for a weight matrix",
                        entry.dtype == DType::kU32
                            ? "f32, f16 or bf16, or a \"quantization\" key in config.json"
                            : "f32, f16 or bf16",
                        std::string(dtype_name(entry.dtype)));
  }
  MLXCEL_ASSIGN_OR_RETURN(const Slice slice, slice_of(checkpoint, entry, expert));
  WeightMatrix matrix;
  matrix.name = entry.name;
  matrix.format.kind = is_block ? WeightKind::kGguf : WeightKind::kPlain;
  if (is_block) matrix.format.gguf_type = *entry.gguf_type;
  if (!is_block) matrix.format.dtype = entry.dtype;
  matrix.rows = slice.rows;
  matrix.columns = slice.columns;
  matrix.data = slice.data;
  return matrix;
}

}  // namespace

Result<WeightMatrix> load_matrix(const Checkpoint& checkpoint, std::string_view name,
                                 std::optional<int> expert) {
  MLXCEL_ASSIGN_OR_RETURN(const TensorEntry* entry, require(checkpoint, name));
  const bool has_suffix = name.ends_with(kWeightSuffix);
  const Request request{checkpoint, *entry,
                        std::string(name.substr(0, name.size() - (has_suffix ? kWeightSuffix.size() : 0))),
                        expert};
  std::optional<MlxQuantisation> quantisation;
  if (has_suffix && checkpoint.kind == CheckpointKind::kHuggingFace) {
    MLXCEL_ASSIGN_OR_RETURN(quantisation, mlx_quantisation(checkpoint, request.base));
  }
  const auto load = [&]() -> Result<WeightMatrix> {
    if (quantisation) return load_mlx(request, *quantisation);
    if (entry->dtype == DType::kF8E4M3) return load_fp8(request);
    return load_plain_or_gguf(request);
  };
  MLXCEL_ASSIGN_OR_RETURN(WeightMatrix matrix, load());
  MLXCEL_RETURN_IF_ERROR(validate_weight_matrix(matrix));
  return matrix;
}

Result<std::vector<float>> load_vector(const Checkpoint& checkpoint, std::string_view name) {
  MLXCEL_ASSIGN_OR_RETURN(const TensorEntry* entry, require(checkpoint, name));
  const bool is_plain = !entry->gguf_type || gguf_type_info(*entry->gguf_type)->block_elements == 1;
  if (!is_plain || !is_float(entry->dtype)) {
    return tensor_error(checkpoint, name, "wrong element type for a vector", "f32, f16 or bf16",
                        is_plain ? std::string(dtype_name(entry->dtype))
                                 : std::string(gguf_type_info(*entry->gguf_type)->name));
  }
  std::vector<float> values(entry->data.size() / dtype_size(entry->dtype));
  if (values.empty())
    return tensor_error(checkpoint, name, "tensor is empty", "at least one element", "none");
  // One row of a plain matrix: the same widening.
  WeightMatrix row;
  row.name = entry->name;
  row.format.dtype = entry->dtype;
  row.rows = 1;
  row.columns = static_cast<int64_t>(values.size());
  row.data = entry->data;
  decode_row(row, 0, values);
  return values;
}

}  // namespace mlxcel
