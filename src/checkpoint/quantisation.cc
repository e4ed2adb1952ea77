#include "checkpoint/quantisation.h"

namespace mlxcel {
namespace {

constexpr int64_t kFp8Block = 128;

struct ModeRow {
  std::string_view name;
  MlxMode mode;
  int bits, group_size;  // what MLX takes when the key is absent
};
// Defaults: MLX documentation of mx.quantize, table of modes.
constexpr ModeRow kModes[] = {
    {"affine", MlxMode::kAffine, 4, 64},
    {"mxfp4", MlxMode::kMxfp4, 4, 32},
    {"mxfp8", MlxMode::kMxfp8, 8, 32},
    {"nvfp4", MlxMode::kNvfp4, 4, 16},
};

std::string config_where(const Checkpoint& checkpoint) { return path_join(checkpoint.path, "config.json"); }

// The object with MLX's parameters, nullptr when there is none. MLX writes it under both keys; other tools
// use the second one with "quant_method".
const JsonValue* mlx_object(const Checkpoint& checkpoint) {
  if (const JsonValue* quantization = checkpoint.config.find_set("quantization")) return quantization;
  const JsonValue* other = checkpoint.config.find_set("quantization_config");
  return other != nullptr && other->find_set("quant_method") == nullptr ? other : nullptr;
}

// The object of another tool, nullptr when MLX's rules.
const JsonValue* foreign_object(const Checkpoint& checkpoint) {
  if (checkpoint.config.find_set("quantization") != nullptr) return nullptr;
  const JsonValue* other = checkpoint.config.find_set("quantization_config");
  return other != nullptr && other->find_set("quant_method") != nullptr ? other : nullptr;
}

Result<MlxQuantisation> read_parameters(const JsonValue& object, const std::string& where) {
  const JsonReader reader(object, where);
  MLXCEL_ASSIGN_OR_RETURN(const std::string mode, reader.string("mode", "affine"));
  for (const ModeRow& row : kModes) {
    if (row.name != mode) continue;
    MLXCEL_ASSIGN_OR_RETURN(const int64_t bits, reader.integer("bits", row.bits));
    MLXCEL_ASSIGN_OR_RETURN(const int64_t group_size, reader.integer("group_size", row.group_size));
    const bool is_fixed = row.mode != MlxMode::kAffine;
    const bool fits = is_fixed ? bits == row.bits && group_size == row.group_size
                               : bits >= 2 && bits <= 8 && bits != 7 &&
                                     (group_size == 32 || group_size == 64 || group_size == 128);
    if (!fits) {
      return make_error(ErrorKind::kUnsupported, "quantisation parameters that MLX does not have", where,
                        is_fixed ? std::to_string(row.bits) + " bits, group " + std::to_string(row.group_size)
                                 : "2, 3, 4, 5, 6 or 8 bits and a group of 32, 64 or 128",
                        std::to_string(bits) + " bits, group " + std::to_string(group_size));
    }
    return MlxQuantisation{static_cast<int>(bits), static_cast<int>(group_size), row.mode};
  }
  return make_error(ErrorKind::kUnsupported, "unknown quantisation mode", where,
                    "affine, mxfp4, mxfp8 or nvfp4", mode);
}

bool is_parameter(std::string_view key) { return key == "bits" || key == "group_size" || key == "mode"; }

Status check_mlx_object(const JsonValue& object, const std::string& where) {
  if (!object.is_object()) {
    return make_error(ErrorKind::kInvalidData, "quantization has the wrong type", where, "an object",
                      std::string(object.type_name()));
  }
  MLXCEL_RETURN_IF_ERROR(read_parameters(object, where));
  for (const auto& [key, value] : object.as_object()) {
    const std::string member_where = where + ", quantization, \"" + key + "\"";
    if (is_parameter(key) || value.is_bool()) continue;
    if (!value.is_object()) {
      return make_error(ErrorKind::kUnsupported, "unknown quantisation key", member_where,
                        "bits, group_size, mode or a layer with an object or boolean",
                        std::string(value.type_name()));
    }
    for (const auto& [inner, unused] : value.as_object()) {
      if (!is_parameter(inner)) {
        return make_error(ErrorKind::kUnsupported, "unknown quantisation key", member_where,
                          "bits, group_size or mode", inner);
      }
    }
    MLXCEL_RETURN_IF_ERROR(read_parameters(value, member_where));
  }
  return ok_status();
}

Status check_fp8_object(const JsonValue& object, const std::string& where) {
  const JsonReader reader(object, where);
  MLXCEL_ASSIGN_OR_RETURN(const std::string format, reader.string("fmt", "e4m3"));
  if (format != "e4m3" && format != "float8_e4m3fn") {
    return make_error(ErrorKind::kUnsupported, "fp8 format not supported", where, "e4m3", format);
  }
  // Static schemes bring scales of activations, which weights-only arithmetic would silently leave out.
  MLXCEL_ASSIGN_OR_RETURN(const std::string scheme, reader.string("activation_scheme", "dynamic"));
  if (scheme != "dynamic") {
    return make_error(ErrorKind::kUnsupported, "fp8 activation scheme not supported", where, "dynamic",
                      scheme);
  }
  const JsonValue* block = object.find_set("weight_block_size");
  const JsonArray expected{JsonValue(kFp8Block), JsonValue(kFp8Block)};
  if (block == nullptr || !(*block == JsonValue(expected))) {
    return make_error(ErrorKind::kUnsupported, "fp8 weight_block_size not supported", where, "[128, 128]",
                      block == nullptr ? "none" : to_json(*block));
  }
  return ok_status();
}

}  // namespace

Status check_quantisation_config(const Checkpoint& checkpoint) {
  const std::string where = config_where(checkpoint);
  if (const JsonValue* object = mlx_object(checkpoint)) return check_mlx_object(*object, where);
  const JsonValue* object = foreign_object(checkpoint);
  if (object == nullptr) return ok_status();
  MLXCEL_ASSIGN_OR_RETURN(const std::string method, JsonReader(*object, where).string("quant_method"));
  if (method == "fp8") return check_fp8_object(*object, where);
  if (method == "mxfp4") return ok_status();  // the tensors say which: "<name>_blocks" beside "<name>_scales"
  return make_error(ErrorKind::kUnsupported, "quantisation method not supported",
                    where + ", quantization_config", "MLX quantisation, fp8 blocks or mxfp4", method,
                    "use an MLX, GGUF or unquantised version of the model");
}

bool is_fp8_block_checkpoint(const Checkpoint& checkpoint) {
  const JsonValue* object = foreign_object(checkpoint);
  return object != nullptr && *object->find("quant_method") == JsonValue("fp8");
}

Result<std::optional<MlxQuantisation>> mlx_quantisation(const Checkpoint& checkpoint,
                                                        std::string_view base_name) {
  const std::optional<MlxQuantisation> none;
  const JsonValue* object = mlx_object(checkpoint);
  if (object == nullptr) return none;
  const std::string where = config_where(checkpoint) + ", quantization";
  const JsonValue* parameters = object;
  const JsonValue* override_value = is_parameter(base_name) ? nullptr : object->find_set(base_name);
  if (override_value != nullptr && override_value->is_bool()) {
    if (!override_value->as_bool()) return none;
  } else if (override_value != nullptr) {
    parameters = override_value;
  }
  // Without a word about it, a tensor is quantised when it has scales (embeddings and norms may not be).
  if (override_value == nullptr && checkpoint.find(std::string(base_name) + ".scales") == nullptr)
    return none;
  MLXCEL_ASSIGN_OR_RETURN(const MlxQuantisation result, read_parameters(*parameters, where));
  return std::optional(result);
}

}  // namespace mlxcel
