#include "hub/model_store.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>

#include "base/file.h"
#include "base/json.h"
#include "base/suggest.h"

namespace mlxcel {
namespace {

constexpr std::string_view kForms =
    "a folder with config.json, a .gguf file, owner/name[:QUANT] in the store or in the Hugging Face cache, "
    "or a bare name";
constexpr uint64_t kMaxSmallFile = uint64_t{16} << 20;

std::string lower_case(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

// The hub's rule for owner and name: letters, digits, '-', '_', '.'; no "--" or ".." and no dot or dash at
// the ends.
bool is_name_part(std::string_view part) {
  if (part.empty() || part.size() > 96 || part.front() == '.' || part.front() == '-' || part.back() == '.' ||
      part.back() == '-') {
    return false;
  }
  for (const char c : part) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '_' || c == '.';
    if (!plain) return false;
  }
  return part.find("..") == std::string_view::npos && part.find("--") == std::string_view::npos;
}

std::vector<std::string> entries(const std::string& folder) {
  auto names = list_directory(folder);
  return names.ok() ? std::move(names).value() : std::vector<std::string>{};
}

// The .gguf file of a folder that `variant` means; the folder itself when there is nothing to choose.
Result<std::string> choose_file(const std::string& folder, const ModelName& name) {
  std::vector<std::string> files;
  for (const std::string& entry : entries(folder)) {
    if (entry.ends_with(".gguf")) files.push_back(entry);
  }
  if (name.variant.empty()) {
    if (files.size() <= 1 || file_exists(path_join(folder, "config.json"))) return folder;
    return make_error(ErrorKind::kInvalidArgument, "the model has several files", name.repository(),
                      "owner/name:QUANT to pick one", fmt::format("{}", fmt::join(files, ", ")));
  }
  for (const std::string& file : files) {
    if (lower_case(file).find(lower_case(name.variant)) != std::string::npos) return path_join(folder, file);
  }
  return make_error(ErrorKind::kNotFound, "no file of the model has this quantisation",
                    fmt::format("{}:{}", name.repository(), name.variant), "part of a .gguf file's name",
                    files.empty() ? "no .gguf file" : fmt::format("{}", fmt::join(files, ", ")),
                    fmt::format("get it with: mlxcel pull {}:{}", name.repository(), name.variant));
}

std::string trimmed(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r' || text.back() == ' ')) text.pop_back();
  return text;
}

// The snapshot of a cached repository: the one refs/main names, else the newest by modification time.
std::optional<std::string> snapshot_of(const std::string& repository_folder) {
  const std::string snapshots = path_join(repository_folder, "snapshots");
  if (auto reference = read_file(path_join(repository_folder, "refs/main"), 4096); reference.ok()) {
    if (auto folder = join_inside(snapshots, trimmed(*reference)); folder.ok() && directory_exists(*folder))
      return *folder;
  }
  std::optional<std::string> newest;
  int64_t newest_time = 0;
  for (const std::string& entry : entries(snapshots)) {
    const std::string folder = path_join(snapshots, entry);
    struct stat info {};
    if (!directory_exists(folder) || ::stat(folder.c_str(), &info) != 0) continue;
    if (!newest || info.st_mtime > newest_time) {
      newest = folder;
      newest_time = info.st_mtime;
    }
  }
  return newest;
}

void measure(const std::string& folder, StoredModel& model) {
  for (const std::string& entry : entries(folder)) {
    struct stat info {};
    if (::stat(path_join(folder, entry).c_str(), &info) != 0 || !S_ISREG(info.st_mode)) continue;
    model.bytes += static_cast<uint64_t>(info.st_size);
    model.modified_unix_seconds = std::max<int64_t>(model.modified_unix_seconds, info.st_mtime);
  }
}

bool looks_like_model(const std::string& folder) {
  if (file_exists(path_join(folder, "config.json")) || file_exists(path_join(folder, kPullManifest)))
    return true;
  const std::vector<std::string> names = entries(folder);
  return std::any_of(names.begin(), names.end(),
                     [](const std::string& name) { return name.ends_with(".gguf"); });
}

void list_store(const StorePaths& paths, std::vector<StoredModel>& out) {
  const std::string root = path_join(paths.home, "models");
  for (const std::string& owner : entries(root)) {
    for (const std::string& name : entries(path_join(root, owner))) {
      StoredModel model{
          owner + "/" + name, path_join(path_join(root, owner), name), ModelSource::kStore, 0, 0, true};
      if (!directory_exists(model.path) || !looks_like_model(model.path)) continue;
      measure(model.path, model);
      model.is_complete = is_complete_download(model.path);
      out.push_back(std::move(model));
    }
  }
}

void list_hugging_face(const StorePaths& paths, std::vector<StoredModel>& out) {
  if (paths.hugging_face_hub.empty()) return;
  for (const std::string& entry : entries(paths.hugging_face_hub)) {
    constexpr std::string_view kPrefix = "models--";
    if (!entry.starts_with(kPrefix)) continue;
    const std::string rest = entry.substr(kPrefix.size());
    const size_t dashes = rest.find("--");
    if (dashes == std::string::npos) continue;
    const std::optional<std::string> folder = snapshot_of(path_join(paths.hugging_face_hub, entry));
    if (!folder || !looks_like_model(*folder)) continue;
    StoredModel model{rest.substr(0, dashes) + "/" + rest.substr(dashes + 2),
                      *folder,
                      ModelSource::kHuggingFaceCache,
                      0,
                      0,
                      true};
    measure(*folder, model);
    out.push_back(std::move(model));
  }
}

Error not_found(std::string_view reference, const StorePaths& paths, const std::optional<ModelName>& name) {
  std::vector<std::string> known;
  for (const StoredModel& model : list_models(paths)) {
    known.push_back(model.name);
    known.push_back(model.name.substr(model.name.find('/') + 1));
  }
  std::string hint =
      name ? fmt::format("get it with: mlxcel pull {}", name->repository()) : "see: mlxcel list";
  if (const auto nearest = closest_word(reference, known)) hint = fmt::format("did you mean '{}'?", *nearest);
  return make_error(ErrorKind::kNotFound, "no such model", fmt::format("'{}'", reference),
                    std::string(kForms), "none of them", std::move(hint));
}

}  // namespace

std::string_view model_source_name(ModelSource source) {
  switch (source) {
    case ModelSource::kPath:
      return "path";
    case ModelSource::kStore:
      return "store";
    case ModelSource::kHuggingFaceCache:
      return "huggingface";
  }
  return "";
}

Result<ModelName> parse_model_name(std::string_view reference, std::string_view default_owner) {
  ModelName name;
  std::string_view rest = reference;
  if (const size_t colon = rest.find(':'); colon != std::string_view::npos) {
    name.variant = std::string(rest.substr(colon + 1));
    rest = rest.substr(0, colon);
    if (!is_name_part(name.variant)) rest = {};
  }
  const size_t slash = rest.find('/');
  name.owner = std::string(slash == std::string_view::npos ? default_owner : rest.substr(0, slash));
  name.name = std::string(slash == std::string_view::npos ? rest : rest.substr(slash + 1));
  if (is_name_part(name.owner) && is_name_part(name.name)) return name;
  return make_error(ErrorKind::kInvalidArgument, "no model name", fmt::format("'{}'", reference),
                    "owner/name[:QUANT] or a bare name");
}

std::string store_folder(const StorePaths& paths, const ModelName& name) {
  return path_join(path_join(path_join(paths.home, "models"), name.owner), name.name);
}

bool is_complete_download(const std::string& folder) {
  const std::string manifest = path_join(folder, kPullManifest);
  if (!file_exists(manifest)) return true;
  auto text = read_file(manifest, kMaxSmallFile);
  if (!text.ok()) return false;
  auto json = parse_json(*text, manifest);
  const JsonValue* files = json.ok() ? json->find("files") : nullptr;
  if (files == nullptr || !files->is_array()) return false;
  for (const JsonValue& file : files->as_array()) {
    const JsonValue* path = file.find("path");
    if (path == nullptr || !path->is_string()) return false;
    auto full = join_inside(folder, path->as_string());
    struct stat info {};
    if (!full.ok() || ::stat(full->c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return false;
    const JsonValue* size = file.find_set("size");
    if (size != nullptr && (!size->is_int() || size->as_int() != info.st_size)) return false;
  }
  return true;
}

Result<ResolvedModel> resolve_model(std::string_view reference, const StorePaths& paths) {
  const std::string text(reference);
  if (!text.empty() && (directory_exists(text) || file_exists(text))) {
    return ResolvedModel{text, std::string(path_basename(text)), ModelSource::kPath};
  }
  const bool is_path = text.starts_with(".") || text.starts_with("/") || text.starts_with("~") ||
                       text.ends_with(".gguf") || text.ends_with("/") || text.empty();
  auto parsed = parse_model_name(text, paths.default_owner);
  if (is_path || !parsed.ok()) return not_found(reference, paths, std::nullopt);
  const ModelName& name = *parsed;

  const std::string folder = store_folder(paths, name);
  if (directory_exists(folder) && looks_like_model(folder)) {
    if (!is_complete_download(folder)) {
      return make_error(ErrorKind::kInvalidData, "the model's download is incomplete", folder,
                        "every file of the download", "",
                        fmt::format("finish it with: mlxcel pull {}", text));
    }
    MLXCEL_ASSIGN_OR_RETURN(std::string path, choose_file(folder, name));
    return ResolvedModel{std::move(path), name.repository(), ModelSource::kStore};
  }
  if (!paths.hugging_face_hub.empty()) {
    const std::string cached =
        path_join(paths.hugging_face_hub, fmt::format("models--{}--{}", name.owner, name.name));
    if (const std::optional<std::string> snapshot = snapshot_of(cached)) {
      MLXCEL_ASSIGN_OR_RETURN(std::string path, choose_file(*snapshot, name));
      return ResolvedModel{std::move(path), name.repository(), ModelSource::kHuggingFaceCache};
    }
  }
  return not_found(reference, paths, name);
}

std::vector<StoredModel> list_models(const StorePaths& paths) {
  std::vector<StoredModel> models;
  list_store(paths, models);
  list_hugging_face(paths, models);
  std::stable_sort(models.begin(), models.end(),
                   [](const StoredModel& a, const StoredModel& b) { return a.name < b.name; });
  return models;
}

}  // namespace mlxcel
