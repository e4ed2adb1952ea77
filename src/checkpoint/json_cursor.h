// A pull reader of JSON for headers that may hold anything: it walks the text once, keeps nothing, and
// allocates only the strings its caller asks for, so a hostile header of a hundred megabytes costs no more
// than a good one. (A document as a value, base/json.h, takes up to twenty times the size of its text.)
// Private to checkpoint/.
//
// Owner: views the text. Threads: one.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/error.h"

namespace mlxcel {

class JsonCursor {
 public:
  // `where` names the source in errors.
  JsonCursor(std::string_view text, std::string where) : text_(text), where_(std::move(where)) {}

  // Reads an object: `visit(key)` must consume the member's value. The same for arrays, without a key.
  Status object(const std::function<Status(std::string key)>& visit);
  Status array(const std::function<Status()>& visit);
  // A string of at most `bytes_max` bytes of well-formed UTF-8.
  Result<std::string> string(size_t bytes_max);
  // Digits only: no sign, fraction or exponent.
  Result<uint64_t> unsigned_integer();
  // Any value.
  Status skip_value();
  // Nothing but white space may follow.
  Status end();
  Error error_here(std::string_view expected) const;

 private:
  void skip_space();
  bool consume(char c);
  Status skip_nested(int depth);
  Status skip_string();
  Status skip_number();
  Status append_escape(std::string& out);
  Result<uint32_t> hex4();

  std::string_view text_;
  std::string where_;
  size_t position_ = 0;
};

}  // namespace mlxcel
