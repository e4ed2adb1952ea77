#include "checkpoint/checkpoint.h"

#include <algorithm>

#include "checkpoint/gguf.h"
#include "checkpoint/hugging_face.h"

namespace mlxcel {
namespace {

std::string_view kind_of_value(const GgufValue& value) {
  constexpr std::string_view names[] = {"an integer", "a number", "a boolean", "a string", "an array"};
  return names[value.data.index()];
}

Error metadata_error(const Checkpoint& checkpoint, std::string_view key, std::string_view expected,
                     const GgufValue* found) {
  return make_error(ErrorKind::kInvalidData,
                    found == nullptr ? "metadata key is missing" : "metadata key has the wrong type",
                    checkpoint.path + ", \"" + std::string(key) + "\"", std::string(expected),
                    found == nullptr ? std::string("no such key") : std::string(kind_of_value(*found)));
}

Status open_gguf_file(const std::string& path, Checkpoint& checkpoint) {
  MLXCEL_ASSIGN_OR_RETURN(MappedFile file, MappedFile::open(path));
  MLXCEL_ASSIGN_OR_RETURN(GgufContents contents,
                          read_gguf(file.bytes(), path, std::string(path_basename(path))));
  checkpoint.kind = CheckpointKind::kGguf;
  checkpoint.metadata = std::move(contents.metadata);
  checkpoint.tensors = std::move(contents.tensors);
  checkpoint.files.push_back(std::move(file));
  return ok_status();
}

// The one .gguf file of a folder without config.json.
Result<std::string> only_gguf_in(const std::string& folder) {
  MLXCEL_ASSIGN_OR_RETURN(const std::vector<std::string> names, list_directory(folder));
  std::vector<std::string> found;
  for (const std::string& name : names) {
    if (name.ends_with(".gguf")) found.push_back(name);
  }
  if (found.size() == 1) return path_join(folder, found.front());
  return make_error(ErrorKind::kNotFound, "the folder is not a model", folder,
                    "config.json with safetensors, or exactly one .gguf file",
                    "no config.json and " + std::to_string(found.size()) + " .gguf files",
                    found.empty() ? "" : "name one of the .gguf files");
}

}  // namespace

const TensorEntry* Checkpoint::find(std::string_view name) const {
  const auto found = tensors.find(name);
  return found == tensors.end() ? nullptr : &found->second;
}

const GgufValue* Checkpoint::meta(std::string_view key) const {
  const auto found = metadata.find(key);
  return found == metadata.end() ? nullptr : &found->second;
}

Result<int64_t> Checkpoint::meta_integer(std::string_view key, std::optional<int64_t> fallback) const {
  const GgufValue* value = meta(key);
  if (value == nullptr && fallback) return *fallback;
  if (value == nullptr || value->integer() == nullptr) return metadata_error(*this, key, "an integer", value);
  return *value->integer();
}

Result<double> Checkpoint::meta_number(std::string_view key, std::optional<double> fallback) const {
  const GgufValue* value = meta(key);
  if (value == nullptr && fallback) return *fallback;
  if (value != nullptr && value->integer() != nullptr) return static_cast<double>(*value->integer());
  if (value == nullptr || value->number() == nullptr) return metadata_error(*this, key, "a number", value);
  return *value->number();
}

Result<std::string> Checkpoint::meta_string(std::string_view key, std::optional<std::string> fallback) const {
  const GgufValue* value = meta(key);
  if (value == nullptr && fallback) return *fallback;
  if (value == nullptr || value->string() == nullptr) return metadata_error(*this, key, "a string", value);
  return *value->string();
}

uint64_t Checkpoint::tensor_bytes() const {
  uint64_t sum = 0;  // tensors do not overlap, so this is at most the size of the files
  for (const auto& [name, entry] : tensors) sum += entry.data.size();
  return sum;
}

Result<std::shared_ptr<const Checkpoint>> open_checkpoint(const std::string& path) {
  auto checkpoint = std::make_shared<Checkpoint>();
  checkpoint->path = path;
  if (!directory_exists(path)) {
    MLXCEL_RETURN_IF_ERROR(open_gguf_file(path, *checkpoint));
  } else if (file_exists(path_join(path, "config.json"))) {
    MLXCEL_RETURN_IF_ERROR(open_hugging_face(path, *checkpoint));
  } else {
    MLXCEL_ASSIGN_OR_RETURN(const std::string file, only_gguf_in(path));
    MLXCEL_RETURN_IF_ERROR(open_gguf_file(file, *checkpoint));
  }
  return std::shared_ptr<const Checkpoint>(std::move(checkpoint));
}

}  // namespace mlxcel
