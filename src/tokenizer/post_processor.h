// Post-processors of tokenizer.json, as far as ids go: what stands before and behind the text (BOS, EOS,
// [CLS], ...).
//
// Owner: the pipeline. Threads: a value.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "tokenizer/tokenizer.h"

namespace mlxcel {

struct Surround {
  std::vector<TokenId> before;
  std::vector<TokenId> after;
};

// Null or absent gives nothing to add. Unknown types are errors naming key and type.
Result<Surround> parse_post_processor(const JsonValue* value, const std::string& where);

}  // namespace mlxcel
