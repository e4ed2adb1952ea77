#include "model/model_loader.h"

#include <algorithm>
#include <cmath>

#include "model/bind_weights.h"
#include "model/family.h"
#include "model/gguf_config.h"

namespace mlxcel {
namespace {

// Layers times experts: far above published models (61 x 256), low enough to list every role.
constexpr int64_t kMaxExpertsInAll = 1 << 18;

std::string config_name(const Checkpoint& checkpoint) {
  if (checkpoint.kind == CheckpointKind::kGguf) return std::string(path_basename(checkpoint.path));
  return path_join(checkpoint.path, "config.json");
}

// What "quantization_config" may say: methods whose bytes this build can read. Others change what weights
// mean.
Status check_quantisation(const Checkpoint& checkpoint) {
  const JsonValue* settings = checkpoint.config.find_set("quantization_config");
  if (settings == nullptr) return ok_status();
  const JsonValue* method = settings->find_set("quant_method");
  if (method == nullptr) return ok_status();  // mlx writes its settings under this name as well
  if (method->is_string() && (method->as_string() == "fp8" || method->as_string() == "mxfp4"))
    return ok_status();
  return make_error(ErrorKind::kUnsupported, "quantisation method is not supported",
                    config_name(checkpoint) + ": quantization_config.quant_method", "fp8 or mxfp4",
                    to_json(*method), "use the unquantised checkpoint, an MLX conversion or a GGUF file");
}

Error unknown_family(const Checkpoint& checkpoint, const std::string& type) {
  std::string known;
  for (const std::string& name : supported_families()) known += (known.empty() ? "" : ", ") + name;
  return make_error(ErrorKind::kUnsupported, "model type is not supported",
                    config_name(checkpoint) + ": model_type", "one of " + known,
                    type.empty() ? "nothing" : type);
}

Result<const Family*> choose_family(const Checkpoint& checkpoint, const JsonValue& config) {
  const JsonValue* type = config.find_set("model_type");
  const std::string name = type != nullptr && type->is_string() ? type->as_string() : std::string();
  if (const Family* family = find_family(name)) return family;
  // A multi-modal wrapper: its language model decides.
  const JsonValue* text = config.find_set("text_config");
  const JsonValue* inner = text == nullptr ? nullptr : text->find_set("model_type");
  if (inner != nullptr && inner->is_string()) {
    if (const Family* family = find_family(inner->as_string())) return family;
  }
  return unknown_family(checkpoint, name);
}

std::string architecture_of(const Checkpoint& checkpoint, const JsonValue& config, const Family& family) {
  if (checkpoint.kind == CheckpointKind::kGguf) {
    const GgufValue* value = checkpoint.meta("general.architecture");
    if (value != nullptr && value->string() != nullptr) return *value->string();
  }
  const JsonValue* names = config.find_set("architectures");
  if (names != nullptr && names->is_array() && !names->as_array().empty() &&
      names->as_array().front().is_string()) {
    return names->as_array().front().as_string();
  }
  return std::string(family.name);
}

// Sizes that depend on each other across keys.
Status check_spec(const Checkpoint& checkpoint, const ModelSpec& spec) {
  int64_t experts = 0;
  for (const LayerSpec& layer : spec.layers) {
    if (const auto* moe = std::get_if<MoeSpec>(&layer.ffn)) experts += moe->num_experts;
  }
  if (experts > kMaxExpertsInAll) {
    return make_error(ErrorKind::kInvalidData, "model has too many experts", config_name(checkpoint),
                      "at most " + std::to_string(kMaxExpertsInAll) + " over all layers",
                      std::to_string(experts));
  }
  if (static_cast<size_t>(spec.layers.size()) > checkpoint.tensors.size()) {
    return make_error(ErrorKind::kInvalidData, "config has more layers than the checkpoint has tensors",
                      config_name(checkpoint), std::to_string(checkpoint.tensors.size()) + " or fewer",
                      std::to_string(spec.layers.size()));
  }
  return ok_status();
}

Result<FamilyModel> read_family_model(const Checkpoint& checkpoint) {
  const bool is_gguf = checkpoint.kind == CheckpointKind::kGguf;
  GgufConfig translated;
  if (is_gguf) {
    MLXCEL_ASSIGN_OR_RETURN(translated, gguf_config(checkpoint));
  } else {
    MLXCEL_RETURN_IF_ERROR(check_quantisation(checkpoint));
  }
  const JsonValue& config = is_gguf ? translated.config : checkpoint.config;
  MLXCEL_ASSIGN_OR_RETURN(const Family* family, choose_family(checkpoint, config));
  ConfigReader reader(config, config_name(checkpoint), is_gguf ? &translated.source_names : nullptr);
  FamilyModel model;
  model.spec.family = std::string(family->name);
  model.spec.architecture = architecture_of(checkpoint, config, *family);
  family->build(reader, model);
  MLXCEL_RETURN_IF_ERROR(reader.finish());
  MLXCEL_RETURN_IF_ERROR(check_spec(checkpoint, model.spec));
  if (is_gguf) MLXCEL_RETURN_IF_ERROR(adapt_to_gguf(checkpoint, model));
  return model;
}

void undo_head_permutation(const ModelSpec& spec, WeightMap& map) {
  for (auto& [key, source] : map.sources) {
    const auto* attention = std::get_if<AttentionSpec>(&spec.layers[static_cast<size_t>(key.layer)].mixer);
    if (attention == nullptr) continue;
    if (key.role == WeightRole::kQuery || key.role == WeightRole::kQueryBias) {
      source.interleaved_heads = attention->num_heads;
    }
    if (key.role == WeightRole::kKey || key.role == WeightRole::kKeyBias) {
      source.interleaved_heads = attention->num_kv_heads;
    }
  }
}

bool same_bytes(std::span<const std::byte> a, std::span<const std::byte> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

// A tied model may carry a head of its own all the same. An equal copy is the tie; another head is what the
// checkpoint was saved with, and is used.
void settle_tied_head(LoadedModel& model) {
  if (!model.spec.head.tied) return;
  const WeightMatrix* head = model.weights.matrix(0, WeightRole::kHead);
  const WeightMatrix* embedding = model.weights.matrix(0, WeightRole::kEmbedding);
  if (head == nullptr) return;
  if (head->format == embedding->format && same_bytes(head->data, embedding->data) &&
      same_bytes(head->scales, embedding->scales) && same_bytes(head->biases, embedding->biases)) {
    model.weights.erase_matrix({0, WeightRole::kHead, 0});
    return;
  }
  model.spec.head.tied = false;
  model.warnings.push_back("the config ties the output head to the embedding, but " + head->name +
                           " differs from it; the stored head is used");
}

std::string describe_quantisation(const ModelWeights& weights) {
  std::map<std::string, std::set<std::string>> tensors_by_format;
  for (const auto& [key, matrix] : weights.matrices()) {
    tensors_by_format[matrix.format.name()].insert(matrix.name);
  }
  if (tensors_by_format.size() == 1) return tensors_by_format.begin()->first;
  std::vector<std::pair<size_t, std::string>> counts;
  for (const auto& [format, names] : tensors_by_format) counts.emplace_back(names.size(), format);
  std::sort(counts.begin(), counts.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  });
  std::string text;
  for (const auto& [count, format] : counts) {
    if (!text.empty()) text += " + ";
    text += format + " (" + std::to_string(count) + ")";
  }
  return text;
}

}  // namespace

Result<ModelSpec> read_model_spec(const Checkpoint& checkpoint) {
  MLXCEL_ASSIGN_OR_RETURN(FamilyModel model, read_family_model(checkpoint));
  return std::move(model.spec);
}

Result<LoadedModel> load_model(std::shared_ptr<const Checkpoint> checkpoint) {
  MLXCEL_ASSIGN_OR_RETURN(FamilyModel family, read_family_model(*checkpoint));
  std::set<std::string, std::less<>> names;
  for (const auto& [name, entry] : checkpoint->tensors) names.insert(name);
  WeightMap map = map_weights(family.spec, family.names, names);
  if (checkpoint->kind == CheckpointKind::kGguf && family.gguf_permutes_heads) {
    undo_head_permutation(family.spec, map);
  }
  LoadedModel model;
  MLXCEL_ASSIGN_OR_RETURN(BoundWeights bound, bind_weights(*checkpoint, family.spec, map));
  MLXCEL_RETURN_IF_ERROR(check_leftover_tensors(*checkpoint, bound.used, map.ignored));
  model.checkpoint = checkpoint;
  model.spec = std::move(family.spec);
  model.weights = std::move(bound.weights);
  model.weights.join_head_norms(model.spec);
  settle_tied_head(model);
  model.quantisation = describe_quantisation(model.weights);
  for (const std::string& name : bound.used) {
    if (const TensorEntry* entry = checkpoint->find(name)) model.weight_bytes += entry->data.size();
  }
  return model;
}

}  // namespace mlxcel
