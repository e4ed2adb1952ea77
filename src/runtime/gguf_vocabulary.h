// The tokenizer metadata of a GGUF file as the tokenizer module wants it. Key names: ggml's gguf.md.
// Pure functions; any thread.
#pragma once

#include "base/error.h"
#include "checkpoint/checkpoint.h"
#include "tokenizer/tokenizer.h"

namespace mlxcel {

// kNotFound when the file has no vocabulary, kInvalidData naming the key when one is malformed.
Result<GgufVocabulary> read_gguf_vocabulary(const Checkpoint& checkpoint);

}  // namespace mlxcel
