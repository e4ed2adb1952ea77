// Downloads a model from a Hugging Face hub (or a server that speaks its two routes) into the store: only the
// files a model needs, each to a ".partial" file first, resumed where it was cut, checked for size and
// digest, then renamed.
//
// Routes, as huggingface_hub's HfApi documents them: GET /api/models/{id}/revision/{revision}?blobs=true and
// GET /{id}/resolve/{revision}/{path}.
//
// Owner: one call. Threads: one; two processes pulling the same model exclude each other by a lock file.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "hub/model_store.h"

namespace mlxcel {

struct PullProgress {
  std::string file;
  uint64_t done_bytes = 0, total_bytes = 0;  // total 0: the hub did not say
  uint64_t resumed_bytes = 0;                // there before this run
  bool is_finished = false;
};

struct PullOptions {
  std::string endpoint = "https://huggingface.co";
  std::string revision = "main";
  std::string token;  // sent to the endpoint's host only
  int retries = 4;    // attempts after a passing failure without progress
  double stall_timeout_seconds = 60.0;
  double first_backoff_seconds = 1.0;  // doubled per attempt, at most 60
  std::function<void(const PullProgress&)> on_progress;
  std::function<bool()> is_cancelled;
  std::function<void(double seconds)> sleep;  // between attempts; empty: really sleeps
};

struct PullResult {
  std::string folder;
  std::string commit;
  std::vector<std::string> files;  // of this model, downloaded now or before
  uint64_t downloaded_bytes = 0;   // by this call
};

// Errors: kNotFound (404), kIo (network, 401, 403, disk), kInvalidData (answer, size or digest wrong,
// escaping path), kCancelled.
Result<PullResult> pull_model(const ModelName& name, const StorePaths& paths, const PullOptions& options);

// Which of a repository's files a model needs; `variant` asks for the .gguf files whose name holds it.
// Exposed for tests. kNotFound when there is nothing to run, kInvalidArgument when a choice is needed.
Result<std::vector<std::string>> choose_model_files(const std::vector<std::string>& files,
                                                    const ModelName& name);

}  // namespace mlxcel
