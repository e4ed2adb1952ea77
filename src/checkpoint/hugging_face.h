// A folder in Hugging Face layout: config.json, generation_config.json, and safetensors, one file or sharded
// with model.safetensors.index.json. Private to checkpoint/. Owner: fills the Checkpoint it is given.
// Threads: one.
#pragma once

#include <string>

#include "base/error.h"
#include "checkpoint/checkpoint.h"

namespace mlxcel {

Status open_hugging_face(const std::string& folder, Checkpoint& checkpoint);

}  // namespace mlxcel
