// The fields that chat and text completions share, read into what the serving loop takes.
// Values; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "runtime/serving.h"
#include "serve/api/fields.h"

namespace mlxcel {

// What applies when a request does not say: flags over generation_config.json over built-in values, settled
// at start.
struct RequestDefaults {
  SamplingParams sampling;
  int64_t max_tokens = -1;  // -1: until the context is full
  bool strict_model = false, strict_fields = false;
  std::string model_id;
};

struct StreamOptions {
  bool stream = false;
  bool include_usage = false;
  bool timings_per_token = false;
  bool return_token_ids = false;
};

// Fills sampling, stop rules, n, priority and cache fields of `out`. A request without a seed gets a fresh
// random one.
void read_generation_fields(Fields& fields, const TextModel& text, const RequestDefaults& defaults,
                            GenerationRequest& out);
StreamOptions read_stream_options(Fields& fields);
// 404 when the server is strict about names and this is another one.
std::optional<ApiError> check_model_name(Fields& fields, const RequestDefaults& defaults);

}  // namespace mlxcel
