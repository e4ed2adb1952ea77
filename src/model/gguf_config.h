// GGUF metadata in the shape of a config.json, so that a family reads one kind of config, and what GGUF
// decides by the presence of tensors instead of by keys (biases, a head of its own).
//
// Source of the key names: the GGUF specification (ggml/docs/gguf.md) and llama.cpp's constants for it.
// Owner: values. Threads: pure functions of an immutable checkpoint.
#pragma once

#include <map>
#include <string>

#include "base/error.h"
#include "base/json.h"
#include "checkpoint/checkpoint.h"
#include "model/family.h"

namespace mlxcel {

struct GgufConfig {
  JsonValue config;
  std::map<std::string, std::string> source_names;  // config key -> metadata key, for messages
};
// A metadata key of the architecture that has no place in the table is an error that names it.
Result<GgufConfig> gguf_config(const Checkpoint& checkpoint);

// Adjusts a spec read from gguf_config(): names, biases, tied head, stored norm offsets, frequency factors.
Status adapt_to_gguf(const Checkpoint& checkpoint, FamilyModel& model);

}  // namespace mlxcel
