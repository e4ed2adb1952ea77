#include "model/bind_weights.h"

#include <algorithm>
#include <cstring>

#include "base/checked.h"
#include "model/weight_roles.h"

namespace mlxcel {

const WeightMatrix* ModelWeights::matrix(int layer, WeightRole role, int expert) const {
  const auto found = matrices_.find({layer, role, expert});
  return found == matrices_.end() ? nullptr : &found->second;
}

std::span<const float> ModelWeights::vector(int layer, WeightRole role, int expert) const {
  const auto found = vectors_.find({layer, role, expert});
  return found == vectors_.end() ? std::span<const float>() : std::span<const float>(found->second);
}

std::span<const std::byte> ModelWeights::adopt(std::vector<std::byte> bytes) {
  owned_.push_back(std::make_unique<std::vector<std::byte>>(std::move(bytes)));
  return *owned_.back();
}

void ModelWeights::join_head_norms(const ModelSpec& spec) {
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const auto* attention = std::get_if<AttentionSpec>(&spec.layers[i].mixer);
    if (attention == nullptr) continue;
    const auto join = [&](const std::optional<HeadNormSpec>& norm, WeightRole role, int heads) {
      if (!norm || !norm->per_head_weights) return;
      const int layer = static_cast<int>(i);
      for (int head = 1; head < heads; ++head) {
        const auto part = vectors_.extract({layer, role, head});
        if (part.empty()) continue;
        std::vector<float>& whole = vectors_[{layer, role, 0}];
        whole.insert(whole.end(), part.mapped().begin(), part.mapped().end());
      }
    };
    join(attention->q_norm, WeightRole::kQueryNorm, attention->num_heads);
    join(attention->q_norm, WeightRole::kQueryNormBias, attention->num_heads);
    join(attention->k_norm, WeightRole::kKeyNorm, attention->num_kv_heads);
    join(attention->k_norm, WeightRole::kKeyNormBias, attention->num_kv_heads);
  }
}

namespace {

std::string shape_text(int64_t rows, int64_t columns) {
  return "[" + std::to_string(rows) + ", " + std::to_string(columns) + "]";
}

std::string list_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (const int64_t size : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + "]";
}

// Which rows of a stored tensor make up a role.
struct RowPattern {
  int64_t begin = 0, block = 0, period = 0, count = 0;
  int64_t stored(int64_t row) const { return begin + row / block * period + row % block; }
  bool is_contiguous() const { return period == block; }
};
RowPattern row_pattern(const TensorSource& source, int64_t role_rows) {
  RowPattern pattern;
  pattern.begin = source.row_begin;
  pattern.count = role_rows;
  pattern.block = source.row_block == 0 ? role_rows : source.row_block;
  pattern.period = source.row_block == 0 ? role_rows : source.row_period;
  return pattern;
}

class Binder {
 public:
  Binder(const Checkpoint& checkpoint, const ModelSpec& spec, const WeightMap& map)
      : checkpoint_(checkpoint), spec_(spec), map_(map) {}
  Result<BoundWeights> run();

 private:
  Error error(const TensorSource& source, const RoleShape& role, std::string what, std::string expected,
              std::string found) const;
  Status bind_matrix(const RoleShape& role, const TensorSource& source);
  Status bind_vector(const RoleShape& role, const TensorSource& source);
  Result<WeightMatrix> load(const TensorSource& source);
  Result<WeightMatrix> load_mxfp4_blocks(const TensorSource& source);
  Status transpose(WeightMatrix& matrix, const TensorSource& source, const RoleShape& role);
  Status select(WeightMatrix& matrix, const TensorSource& source, const RoleShape& role);
  std::span<const std::byte> pick_rows(std::span<const std::byte> bytes, int64_t rows,
                                       const RowPattern& pattern);

  const Checkpoint& checkpoint_;
  const ModelSpec& spec_;
  const WeightMap& map_;
  BoundWeights bound_;
};

Error Binder::error(const TensorSource& source, const RoleShape& role, std::string what, std::string expected,
                    std::string found) const {
  std::string where = std::string(path_basename(checkpoint_.path)) + ": " + source.name + " (" +
                      std::string(weight_role_name(role.key.role));
  if (role.key.layer > 0) where += ", layer " + std::to_string(role.key.layer);
  return make_error(ErrorKind::kInvalidData, std::move(what), where + ")", std::move(expected),
                    std::move(found));
}

// GPT-OSS's MXFP4: "<name>_blocks" [experts, rows, groups, 16] with the lower nibble first, "<name>_scales"
// [experts, rows, groups] of e8m0. The bytes of a row are those of mlx's packed words.
Result<WeightMatrix> Binder::load_mxfp4_blocks(const TensorSource& source) {
  constexpr int64_t kGroup = 32, kBytes = 16;
  const std::string scales_name =
      source.name.substr(0, source.name.size() - std::strlen("_blocks")) + "_scales";
  const TensorEntry* blocks = checkpoint_.find(source.name);
  const TensorEntry* scales = checkpoint_.find(scales_name);
  const RoleShape any;
  if (scales == nullptr)
    return error(source, any, "scales of MXFP4 blocks are missing", scales_name, "nothing");
  const bool fits = blocks->dtype == DType::kU8 && scales->dtype == DType::kU8 && blocks->shape.size() == 4 &&
                    blocks->shape[3] == kBytes && scales->shape.size() == 3 &&
                    std::equal(scales->shape.begin(), scales->shape.end(), blocks->shape.begin());
  if (!fits || !source.expert || *source.expert >= blocks->shape[0]) {
    return error(source, any, "MXFP4 blocks and scales do not fit each other",
                 "u8 [experts, rows, groups, 16] and [experts, rows, groups]",
                 list_text(blocks->shape) + " and " + list_text(scales->shape));
  }
  WeightMatrix matrix;
  matrix.name = source.name;
  matrix.format.kind = WeightKind::kMlxFloat;
  matrix.format.mlx_mode = MlxMode::kMxfp4;
  matrix.format.bits = 4;
  matrix.format.group_size = kGroup;
  matrix.rows = blocks->shape[1];
  matrix.columns = blocks->shape[2] * kGroup;
  const uint64_t experts = static_cast<uint64_t>(blocks->shape[0]),
                 expert = static_cast<uint64_t>(*source.expert);
  const uint64_t data_bytes = blocks->data.size() / experts, scale_bytes = scales->data.size() / experts;
  matrix.data = blocks->data.subspan(expert * data_bytes, data_bytes);
  matrix.scales = scales->data.subspan(expert * scale_bytes, scale_bytes);
  MLXCEL_RETURN_IF_ERROR(validate_weight_matrix(matrix));
  bound_.used.insert(scales_name);
  return matrix;
}

Result<WeightMatrix> Binder::load(const TensorSource& source) {
  if (source.name.ends_with("_blocks")) return load_mxfp4_blocks(source);
  MLXCEL_ASSIGN_OR_RETURN(WeightMatrix matrix, load_matrix(checkpoint_, source.name, source.expert));
  const std::string base = source.name.substr(0, source.name.rfind(".weight"));
  switch (matrix.format.kind) {
    case WeightKind::kMlxAffine:
      bound_.used.insert(base + ".biases");
      bound_.used.insert(base + ".scales");
      break;
    case WeightKind::kMlxFloat:
      bound_.used.insert(base + ".scales");
      break;
    case WeightKind::kFp8Block:
      bound_.used.insert(source.name + "_scale_inv");
      break;
    case WeightKind::kPlain:
    case WeightKind::kGguf:
      break;
  }
  return matrix;
}

// A plain [columns, rows] tensor as [rows, columns].
Status Binder::transpose(WeightMatrix& matrix, const TensorSource& source, const RoleShape& role) {
  if (!matrix.format.is_plain()) {
    return error(source, role, "transposed tensor is quantised", "f32, f16 or bf16", matrix.format.name());
  }
  const size_t element = dtype_size(matrix.format.dtype);
  const size_t rows = static_cast<size_t>(matrix.columns), columns = static_cast<size_t>(matrix.rows);
  std::vector<std::byte> turned(matrix.data.size());
  for (size_t r = 0; r < rows; ++r) {
    for (size_t c = 0; c < columns; ++c) {
      std::memcpy(&turned[(r * columns + c) * element], &matrix.data[(c * rows + r) * element], element);
    }
  }
  matrix.data = bound_.weights.adopt(std::move(turned));
  std::swap(matrix.rows, matrix.columns);
  return ok_status();
}

std::span<const std::byte> Binder::pick_rows(std::span<const std::byte> bytes, int64_t rows,
                                             const RowPattern& pattern) {
  if (bytes.empty()) return bytes;
  const size_t row = bytes.size() / static_cast<size_t>(rows);
  std::vector<std::byte> picked(row * static_cast<size_t>(pattern.count));
  for (int64_t r = 0; r < pattern.count; ++r) {
    std::memcpy(&picked[static_cast<size_t>(r) * row], &bytes[static_cast<size_t>(pattern.stored(r)) * row],
                row);
  }
  return bound_.weights.adopt(std::move(picked));
}

Status Binder::select(WeightMatrix& matrix, const TensorSource& source, const RoleShape& role) {
  const RowPattern pattern = row_pattern(source, role.rows);
  if (pattern.begin == 0 && pattern.count == matrix.rows) return ok_status();
  if (pattern.is_contiguous()) {
    matrix = matrix.slice_rows(pattern.begin, pattern.begin + pattern.count);
    return ok_status();
  }
  if (matrix.format.kind == WeightKind::kFp8Block) {
    return error(source, role, "rows of an fp8 tensor with block scales cannot be taken apart",
                 "a tensor per role", shape_text(matrix.rows, matrix.columns));
  }
  matrix.data = pick_rows(matrix.data, matrix.rows, pattern);
  matrix.scales = pick_rows(matrix.scales, matrix.rows, pattern);
  matrix.biases = pick_rows(matrix.biases, matrix.rows, pattern);
  matrix.rows = pattern.count;
  return ok_status();
}

Status Binder::bind_matrix(const RoleShape& role, const TensorSource& source) {
  MLXCEL_ASSIGN_OR_RETURN(WeightMatrix matrix, load(source));
  if (source.transposed) MLXCEL_RETURN_IF_ERROR(transpose(matrix, source, role));
  const int64_t stored = source.stored_rows < 0 ? role.rows : source.stored_rows;
  if (matrix.rows != stored || matrix.columns != role.columns) {
    return error(source, role, "tensor has an unexpected shape", shape_text(stored, role.columns),
                 shape_text(matrix.rows, matrix.columns));
  }
  MLXCEL_RETURN_IF_ERROR(select(matrix, source, role));
  matrix.interleaved_heads = source.interleaved_heads;
  bound_.weights.set_matrix(role.key, std::move(matrix));
  return ok_status();
}

Status Binder::bind_vector(const RoleShape& role, const TensorSource& source) {
  const TensorEntry* entry = checkpoint_.find(source.name);
  const int64_t stored = source.stored_rows < 0 ? role.rows : source.stored_rows;
  const size_t rank = entry->shape.size();
  // [n], or [experts, n] of which one row is ours; leading ones do not matter.
  const int64_t elements = checked_product(entry->shape).value_or(-1);
  const int64_t stack = source.expert ? (rank == 2 ? entry->shape[0] : 0) : 1;
  const bool in_stack = !source.expert || (*source.expert < stack);
  if (stack <= 0 || !in_stack || elements != stack * stored) {
    return error(source, role, "tensor has an unexpected shape",
                 (source.expert ? "[experts, " : "[") + std::to_string(stored) + "]",
                 list_text(entry->shape));
  }
  MLXCEL_ASSIGN_OR_RETURN(const std::vector<float> all, load_vector(checkpoint_, source.name));
  const int64_t first = source.expert ? *source.expert * stored : 0;
  const RowPattern pattern = row_pattern(source, role.rows);
  WeightMatrix order;  // only for source_row(): the order of the matrix that this belongs to
  order.rows = role.rows;
  order.interleaved_heads = source.interleaved_heads;
  std::vector<float> values(static_cast<size_t>(role.rows));
  for (int64_t r = 0; r < role.rows; ++r) {
    const float value = all[static_cast<size_t>(first + pattern.stored(order.source_row(r)))];
    values[static_cast<size_t>(r)] = role.offset == 0.0f ? value : value + role.offset;
  }
  bound_.weights.set_vector(role.key, std::move(values));
  return ok_status();
}

Result<BoundWeights> Binder::run() {
  for (const RoleShape& role : required_roles(spec_)) {
    const TensorSource& source = map_.sources.at(role.key);
    if (checkpoint_.find(source.name) == nullptr) {
      if (source.optional) continue;
      return error(source, role, "tensor is missing", source.name, "nothing");
    }
    bound_.used.insert(source.name);
    MLXCEL_RETURN_IF_ERROR(role.is_matrix ? bind_matrix(role, source) : bind_vector(role, source));
  }
  return std::move(bound_);
}

}  // namespace

Result<BoundWeights> bind_weights(const Checkpoint& checkpoint, const ModelSpec& spec, const WeightMap& map) {
  return Binder(checkpoint, spec, map).run();
}

bool matches_pattern(std::string_view name, std::string_view pattern) {
  const size_t star = pattern.find('*');
  if (star == std::string_view::npos) return name == pattern;
  if (!name.starts_with(pattern.substr(0, star))) return false;
  const std::string_view rest = pattern.substr(star + 1);
  for (size_t at = star; at <= name.size(); ++at) {
    if (matches_pattern(name.substr(at), rest)) return true;
  }
  return false;
}

Status check_leftover_tensors(const Checkpoint& checkpoint, const std::set<std::string, std::less<>>& used,
                              const std::vector<std::string>& ignored) {
  for (const auto& [name, entry] : checkpoint.tensors) {
    if (used.contains(name)) continue;
    const bool is_ignored = std::any_of(ignored.begin(), ignored.end(), [&](const std::string& pattern) {
      return matches_pattern(name, pattern);
    });
    if (is_ignored) continue;
    return make_error(ErrorKind::kUnsupported, "tensor has no role in this model",
                      std::string(path_basename(checkpoint.path)) + ": " + name, {},
                      std::string(dtype_name(entry.dtype)) + " " + list_text(entry.shape),
                      "the model would have to be run without it, and would be another model");
  }
  return ok_status();
}

}  // namespace mlxcel
