// The GGUF container, versions 2 and 3, little-endian: metadata key-value pairs, tensor descriptions, aligned
// data. Private to checkpoint/.
//
// Rules: every count is checked against the bytes that are left before anything is allocated; keys and tensor
// names are unique; sorted by offset, each tensor starts at the first multiple of the alignment behind the
// one before, and nothing but padding to that multiple follows the last.
//
// Format: the GGUF specification in the ggml project's docs (gguf.md).
//
// Owner: results view the bytes given. Threads: pure functions.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>

#include "base/error.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/safetensors.h"

namespace mlxcel {

struct GgufContents {
  std::map<std::string, GgufValue, std::less<>> metadata;
  TensorMap tensors;
};

bool has_gguf_magic(std::span<const std::byte> bytes);
// `where` is the path for errors, `file` the base name for the entries.
Result<GgufContents> read_gguf(std::span<const std::byte> bytes, const std::string& where,
                               const std::string& file);

}  // namespace mlxcel
