// mlxcel inspect: what a checkpoint is and what it needs, without loading its weights.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "backend/backend.h"
#include "base/memory_info.h"
#include "checkpoint/checkpoint.h"
#include "commands.h"
#include "model/model_loader.h"
#include "options/values.h"

namespace mlxcel {
namespace {

struct FormatCount {
  int64_t tensors = 0;
  uint64_t bytes = 0;
};

bool ends_in_parameters_of_quantisation(const Checkpoint& checkpoint, std::string_view name) {
  for (const std::string_view suffix : {".scales", ".biases"}) {
    if (!name.ends_with(suffix)) continue;
    const std::string base(name.substr(0, name.size() - suffix.size()));
    if (checkpoint.find(base + ".weight") != nullptr && checkpoint.find(base + ".scales") != nullptr)
      return true;
  }
  return false;
}

// How a tensor is stored, as people say it: "Q4_K", "mlx 4-bit g64", "bf16".
Result<std::string> storage_name(const Checkpoint& checkpoint, const TensorEntry& tensor) {
  if (tensor.gguf_type) {
    const auto info = gguf_type_info(*tensor.gguf_type);
    return info ? std::string(info->name)
                : fmt::format("GGUF type {}", static_cast<uint32_t>(*tensor.gguf_type));
  }
  constexpr std::string_view kWeight = ".weight";
  if (tensor.name.ends_with(kWeight) && tensor.dtype == DType::kU32) {
    MLXCEL_ASSIGN_OR_RETURN(
        const auto mlx,
        mlx_quantisation(checkpoint, tensor.name.substr(0, tensor.name.size() - kWeight.size())));
    if (mlx) {
      constexpr std::string_view kModes[] = {"", "mxfp4 ", "mxfp8 ", "nvfp4 "};
      return fmt::format("mlx {}{}-bit g{}", kModes[static_cast<size_t>(mlx->mode)], mlx->bits,
                         mlx->group_size);
    }
  }
  if (ends_in_parameters_of_quantisation(checkpoint, tensor.name)) return std::string("scales and offsets");
  return std::string(dtype_name(tensor.dtype));
}

struct Report {
  ModelSpec spec;
  std::map<std::string, FormatCount> formats;
  std::vector<std::pair<const TensorEntry*, std::string>> tensors;
  int64_t context = 0, sequences = 1;
  uint64_t weight_bytes = 0, kv_bytes_per_token = 0, kv_bytes = 0, state_bytes = 0, total_bytes = 0;
  KvType key_type = KvType::kF16, value_type = KvType::kF16;
  std::optional<std::string> cannot_run;  // why our backends refuse it
};

Result<Report> make_report(const Checkpoint& checkpoint, const Settings& settings) {
  Report report;
  MLXCEL_ASSIGN_OR_RETURN(report.spec, read_model_spec(checkpoint));
  for (const auto& [name, tensor] : checkpoint.tensors) {
    MLXCEL_ASSIGN_OR_RETURN(std::string format, storage_name(checkpoint, tensor));
    FormatCount& count = report.formats[format];
    ++count.tensors;
    count.bytes += tensor.data.size();
    report.tensors.emplace_back(&tensor, std::move(format));
  }
  if (const Status runs = check_attention_only(report.spec); !runs.ok())
    report.cannot_run = runs.error().one_line();
  SessionOptions options;
  options.context_length = settings.integer("ctx-size");
  MLXCEL_ASSIGN_OR_RETURN(report.context, choose_context_length(report.spec, options));
  report.sequences = *settings.integer("sequences");
  report.key_type = *parse_kv_type(*settings.text("cache-type-k"));
  report.value_type = *parse_kv_type(*settings.text("cache-type-v"));
  const KvLayout layout = kv_layout_for(report.spec, report.key_type, report.value_type);
  report.weight_bytes = checkpoint.tensor_bytes();
  report.kv_bytes_per_token = static_cast<uint64_t>(layout.bytes_per_row());
  report.kv_bytes = report.kv_bytes_per_token * static_cast<uint64_t>(report.context) *
                    static_cast<uint64_t>(report.sequences);
  report.state_bytes = static_cast<uint64_t>(layout.state_bytes_per_sequence() * report.sequences);
  report.total_bytes = report.weight_bytes + report.kv_bytes + report.state_bytes;
  return report;
}

const AttentionSpec* first_attention(const ModelSpec& spec) {
  for (const LayerSpec& layer : spec.layers) {
    if (const auto* attention = std::get_if<AttentionSpec>(&layer.mixer)) return attention;
  }
  return nullptr;
}

JsonArray shape_json(const std::vector<int64_t>& shape) {
  JsonArray out;
  for (const int64_t dimension : shape) out.emplace_back(dimension);
  return out;
}

JsonObject memory_json(const Report& report) {
  JsonObject memory;
  memory.set("context", report.context);
  memory.set("sequences", report.sequences);
  memory.set("cache_type_k", kv_type_name(report.key_type));
  memory.set("cache_type_v", kv_type_name(report.value_type));
  memory.set("weight_bytes", report.weight_bytes);
  memory.set("kv_bytes_per_token", report.kv_bytes_per_token);
  memory.set("kv_bytes", report.kv_bytes);
  memory.set("state_bytes", report.state_bytes);
  memory.set("total_bytes", report.total_bytes);
  const auto available = available_memory_bytes();
  memory.set("available_bytes", available ? JsonValue(*available) : JsonValue());
  memory.set("fits", available ? JsonValue(report.total_bytes <= *available) : JsonValue());
  return memory;
}

std::string report_json(const ResolvedModel& model, const Checkpoint& checkpoint, const Report& report,
                        bool with_tensors) {
  JsonObject out;
  out.set("model", model.name);
  out.set("path", model.path);
  out.set("container", checkpoint.kind == CheckpointKind::kGguf ? "gguf" : "safetensors");
  out.set("family", report.spec.family);
  out.set("architecture", report.spec.architecture);
  out.set("parameters", report.spec.num_parameters_estimate());
  out.set("layers", static_cast<int64_t>(report.spec.layers.size()));
  out.set("hidden_size", report.spec.hidden_size);
  out.set("vocab_size", report.spec.vocab_size);
  out.set("max_position", report.spec.max_position);
  if (const AttentionSpec* attention = first_attention(report.spec)) {
    out.set("num_heads", attention->num_heads);
    out.set("num_kv_heads", attention->num_kv_heads);
    out.set("head_dim", attention->head_dim);
  }
  out.set("runs", !report.cannot_run.has_value());
  if (report.cannot_run) out.set("reason", *report.cannot_run);
  JsonObject formats;
  for (const auto& [format, count] : report.formats) {
    JsonObject entry;
    entry.set("tensors", count.tensors);
    entry.set("bytes", count.bytes);
    formats.set(format, std::move(entry));
  }
  out.set("quantisation", std::move(formats));
  out.set("num_tensors", static_cast<int64_t>(report.tensors.size()));
  out.set("num_files", static_cast<int64_t>(checkpoint.files.size()));
  out.set("memory", memory_json(report));
  if (with_tensors) {
    JsonArray list;
    for (const auto& [tensor, format] : report.tensors) {
      JsonObject entry;
      entry.set("name", tensor->name);
      entry.set("shape", shape_json(tensor->shape));
      entry.set("format", format);
      entry.set("bytes", static_cast<uint64_t>(tensor->data.size()));
      entry.set("file", tensor->file);
      list.emplace_back(std::move(entry));
    }
    out.set("tensors", std::move(list));
  }
  return to_json(JsonValue(std::move(out))) + "\n";
}

std::string report_text(const ResolvedModel& model, const Checkpoint& checkpoint, const Report& report,
                        bool with_tensors) {
  const ModelSpec& spec = report.spec;
  std::string out = fmt::format(
      "model         {}\npath          {}\nfamily        {} ({})\nparameters    {:.1f} M\n", model.name,
      model.path, spec.family, spec.architecture, static_cast<double>(spec.num_parameters_estimate()) / 1e6);
  out += fmt::format("layers        {}, hidden {}, vocabulary {}, context up to {}\n", spec.layers.size(),
                     spec.hidden_size, spec.vocab_size, spec.max_position);
  if (const AttentionSpec* attention = first_attention(spec)) {
    out += fmt::format("attention     {} heads, {} kv heads, head dim {}\n", attention->num_heads,
                       attention->num_kv_heads, attention->head_dim);
  }
  out += fmt::format("tensors       {} in {} {}\n", report.tensors.size(), checkpoint.files.size(),
                     checkpoint.files.size() == 1 ? "file" : "files");
  for (const auto& [format, count] : report.formats) {
    out += fmt::format("  {:<22} {:>6} tensors  {:>11}\n", format, count.tensors, format_bytes(count.bytes));
  }
  out += fmt::format("memory for {} x {} tokens ({}/{} cache)\n", report.sequences, report.context,
                     kv_type_name(report.key_type), kv_type_name(report.value_type));
  out += fmt::format("  weights     {:>11}\n  kv cache    {:>11}  ({} per token)\n",
                     format_bytes(report.weight_bytes), format_bytes(report.kv_bytes),
                     format_bytes(report.kv_bytes_per_token));
  if (report.state_bytes > 0) out += fmt::format("  state       {:>11}\n", format_bytes(report.state_bytes));
  out += fmt::format("  together    {:>11}", format_bytes(report.total_bytes));
  if (const auto available = available_memory_bytes()) {
    out += fmt::format("  of {} available: {}", format_bytes(*available),
                       report.total_bytes <= *available ? "fits" : "does not fit");
  }
  out += "\n";
  if (report.cannot_run) out += fmt::format("cannot run    {}\n", *report.cannot_run);
  for (const auto& [tensor, format] : report.tensors) {
    if (!with_tensors) break;
    out += fmt::format("{:<60} {:<18} [{}]  {}\n", tensor->name, format, fmt::join(tensor->shape, ", "),
                       format_bytes(tensor->data.size()));
  }
  return out;
}

}  // namespace

Result<int> inspect_command(Context& context) {
  const Settings& settings = context.settings;
  std::optional<std::string> reference = settings.text("model");
  if (!context.arguments.empty()) {
    if (reference && settings.find("model")->origin == Origin::kFlag) {
      return make_error(ErrorKind::kInvalidArgument, "two models are named", "", "-m MODEL or a word",
                        "both");
    }
    reference = context.arguments[0];
  }
  MLXCEL_ASSIGN_OR_RETURN(const ResolvedModel model, find_model(context, reference));
  MLXCEL_ASSIGN_OR_RETURN(const std::shared_ptr<const Checkpoint> checkpoint, open_checkpoint(model.path));
  MLXCEL_ASSIGN_OR_RETURN(const Report report, make_report(*checkpoint, settings));
  const bool with_tensors = settings.flag("tensors");
  context.terminal.print(settings.flag("json") ? report_json(model, *checkpoint, report, with_tensors)
                                               : report_text(model, *checkpoint, report, with_tensors));
  return 0;
}

}  // namespace mlxcel
