#include "checkpoint/hugging_face.h"

#include <map>

#include "checkpoint/json_cursor.h"
#include "checkpoint/quantisation.h"
#include "checkpoint/safetensors.h"

namespace mlxcel {
namespace {

// Half a megabyte of JSON is at most some 40 MiB as a value; published configs are below 100 KB.
constexpr size_t kConfigBytesMax = size_t{512} << 10;
constexpr size_t kConfigDepthMax = 64;
constexpr size_t kShardsMax = 4096;
constexpr size_t kFileNameBytesMax = 255;
constexpr std::string_view kIndexName = "model.safetensors.index.json";
constexpr std::string_view kSingleName = "model.safetensors";

// What an index says: which shard holds a tensor.
struct ShardIndex {
  std::vector<std::string> shards;                             // file names, in order of appearance
  std::map<std::string, size_t, std::less<>> shard_of_tensor;  // index into `shards`
};

Result<JsonValue> read_config(const std::string& path) {
  MLXCEL_ASSIGN_OR_RETURN(const std::string text, read_file(path, kConfigBytesMax));
  if (is_lfs_pointer(std::as_bytes(std::span(text)))) return lfs_pointer_error(path);
  JsonLimits limits;
  limits.max_bytes = kConfigBytesMax;
  limits.max_depth = kConfigDepthMax;
  limits.allow_non_finite = true;  // Python writes Infinity, for example in time_step_limit
  MLXCEL_ASSIGN_OR_RETURN(JsonValue value, parse_json(text, path, limits));
  if (!value.is_object()) {
    return make_error(ErrorKind::kInvalidData, "not a configuration", path, "an object",
                      std::string(value.type_name()));
  }
  return value;
}

Error index_error(const std::string& path, std::string what, std::string expected, std::string found) {
  return make_error(ErrorKind::kInvalidData, std::move(what), path, std::move(expected), std::move(found),
                    "download the folder again");
}

class IndexReader {
 public:
  IndexReader(std::string_view text, const std::string& path) : cursor_(text, path), path_(path) {}

  Result<ShardIndex> read() {
    bool has_map = false;
    MLXCEL_RETURN_IF_ERROR(cursor_.object([&](const std::string& key) -> Status {
      if (key != "weight_map") return cursor_.skip_value();
      if (has_map) return index_error(path_, "repeated key", "one weight_map", "two");
      has_map = true;
      return cursor_.object([this](std::string name) { return read_entry(std::move(name)); });
    }));
    MLXCEL_RETURN_IF_ERROR(cursor_.end());
    if (!has_map) return index_error(path_, "key is missing", "weight_map", "none");
    return std::move(index_);
  }

 private:
  Status read_entry(std::string name) {
    MLXCEL_ASSIGN_OR_RETURN(std::string file, cursor_.string(kFileNameBytesMax));
    if (index_.shard_of_tensor.size() >= kTensorsMax) {
      return index_error(path_, "too many tensors", "at most " + std::to_string(kTensorsMax), "more");
    }
    const auto [known, is_new] = numbers_.try_emplace(file, index_.shards.size());
    if (is_new) {
      if (index_.shards.size() >= kShardsMax) {
        return index_error(path_, "too many shards", "at most " + std::to_string(kShardsMax), "more");
      }
      index_.shards.push_back(std::move(file));
    }
    const auto [entry, is_first] = index_.shard_of_tensor.emplace(std::move(name), known->second);
    if (!is_first) return index_error(path_, "tensor is listed twice", "unique names", entry->first);
    return ok_status();
  }

  JsonCursor cursor_;
  const std::string& path_;
  ShardIndex index_;
  std::map<std::string, size_t> numbers_;
};

Status open_shard(const std::string& path, std::string_view name, Checkpoint& checkpoint) {
  MLXCEL_ASSIGN_OR_RETURN(MappedFile file, MappedFile::open(path));
  MLXCEL_RETURN_IF_ERROR(read_safetensors(file.bytes(), path, std::string(name), checkpoint.tensors));
  checkpoint.files.push_back(std::move(file));
  return ok_status();
}

// Every tensor of the index is in its shard, and every tensor of a shard is in the index.
Status check_index(const ShardIndex& index, const std::string& path, const Checkpoint& checkpoint) {
  for (const auto& [name, shard] : index.shard_of_tensor) {
    const TensorEntry* entry = checkpoint.find(name);
    if (entry == nullptr || entry->file != index.shards[shard]) {
      return index_error(path, "tensor \"" + name + "\" is not in the file the index names",
                         index.shards[shard], entry == nullptr ? "no such tensor" : entry->file);
    }
  }
  if (checkpoint.tensors.size() == index.shard_of_tensor.size()) return ok_status();
  for (const auto& [name, entry] : checkpoint.tensors) {
    if (!index.shard_of_tensor.contains(name)) {
      return index_error(path, "tensor \"" + name + "\" of " + entry.file + " is not in the index",
                         "an entry", "none");
    }
  }
  return ok_status();
}

Status open_sharded(const std::string& folder, const std::string& index_path, Checkpoint& checkpoint) {
  ShardIndex index;
  {
    MLXCEL_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::open(index_path));
    if (is_lfs_pointer(file.bytes())) return lfs_pointer_error(index_path);
    const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.size());
    MLXCEL_ASSIGN_OR_RETURN(index, IndexReader(text, index_path).read());
  }
  for (const std::string& shard : index.shards) {
    if (shard.find('/') != std::string::npos) {
      return index_error(index_path, "a shard outside the folder", "file names without '/'", shard);
    }
    MLXCEL_ASSIGN_OR_RETURN(const std::string path, join_inside(folder, shard));
    MLXCEL_RETURN_IF_ERROR(open_shard(path, shard, checkpoint));
  }
  return check_index(index, index_path, checkpoint);
}

}  // namespace

Status open_hugging_face(const std::string& folder, Checkpoint& checkpoint) {
  checkpoint.kind = CheckpointKind::kHuggingFace;
  MLXCEL_ASSIGN_OR_RETURN(checkpoint.config, read_config(path_join(folder, "config.json")));
  const std::string generation_path = path_join(folder, "generation_config.json");
  if (file_exists(generation_path)) {
    MLXCEL_ASSIGN_OR_RETURN(checkpoint.generation_config, read_config(generation_path));
  }
  MLXCEL_RETURN_IF_ERROR(check_quantisation_config(checkpoint));
  const std::string index_path = path_join(folder, kIndexName);
  if (file_exists(index_path)) return open_sharded(folder, index_path, checkpoint);
  const std::string single_path = path_join(folder, kSingleName);
  if (file_exists(single_path)) return open_shard(single_path, kSingleName, checkpoint);
  return make_error(ErrorKind::kNotFound, "the folder has no weights", folder,
                    "model.safetensors or model.safetensors.index.json", "neither",
                    "download the model's safetensors files");
}

}  // namespace mlxcel
