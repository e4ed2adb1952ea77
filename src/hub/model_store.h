// Where models are on this machine: our own store (<home>/models/owner/name), the Hugging Face cache (only
// read), and what a user's word for a model means.
//
// Owner: values. Threads: functions read the disk and keep nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace mlxcel {

struct StorePaths {
  std::string home;                             // ~/.cache/mlxcel
  std::string hugging_face_hub;                 // $HF_HOME/hub; empty: not looked at
  std::string default_owner = "mlx-community";  // of a bare name
};

// owner/name[:variant]; the variant picks one of several .gguf files by a part of its name ("Q4_K_M").
struct ModelName {
  std::string owner, name, variant;
  std::string repository() const { return owner + "/" + name; }
};
// kInvalidArgument for anything that is no repository name; a bare name gets `default_owner`.
Result<ModelName> parse_model_name(std::string_view reference, std::string_view default_owner);

enum class ModelSource { kPath, kStore, kHuggingFaceCache };
std::string_view model_source_name(ModelSource source);

struct ResolvedModel {
  std::string path;  // folder or .gguf file
  std::string name;  // for people
  ModelSource source = ModelSource::kPath;
};
// A path that exists, a name in the store, a name in the Hugging Face cache, in this order. kNotFound lists
// the forms and the nearest local name.
Result<ResolvedModel> resolve_model(std::string_view reference, const StorePaths& paths);

struct StoredModel {
  std::string name, path;
  ModelSource source = ModelSource::kStore;
  uint64_t bytes = 0;
  int64_t modified_unix_seconds = 0;
  bool is_complete = true;  // false: a download was cut short
};
// Sorted by name, the store before the cache.
std::vector<StoredModel> list_models(const StorePaths& paths);

std::string store_folder(const StorePaths& paths, const ModelName& name);
// Written into a model's folder by a download: which files belong to it and how large they are.
inline constexpr std::string_view kPullManifest = ".mlxcel-pull.json";
// False when the manifest lists a file that is missing or has another size. True without a manifest.
bool is_complete_download(const std::string& folder);

}  // namespace mlxcel
