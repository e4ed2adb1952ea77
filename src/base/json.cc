#include "base/json.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/file.h"
#include "base/utf8.h"

namespace mlxcel {

// ---- objects
// -------------------------------------------------------------------------------------------------------

namespace {
constexpr size_t kIndexFrom = 16;  // members; below, a linear search is faster than a binary one
}

// Brings the index up to date after members [first, size) were appended or changed place.
void JsonObject::index_from(size_t first) {
  if (members_.size() < kIndexFrom) {
    index_.clear();
    return;
  }
  const auto by_key = [this](uint32_t a, uint32_t b) { return members_[a].first < members_[b].first; };
  if (index_.size() == first && first + 1 == members_.size()) {
    const auto newest = static_cast<uint32_t>(first);
    index_.insert(std::lower_bound(index_.begin(), index_.end(), newest, by_key), newest);
    return;
  }
  index_.resize(members_.size());
  std::iota(index_.begin(), index_.end(), 0u);
  std::sort(index_.begin(), index_.end(), by_key);
}

const JsonValue* JsonObject::find(std::string_view key) const {
  if (members_.size() < kIndexFrom) {
    for (const JsonMember& m : members_) {
      if (m.first == key) return &m.second;
    }
    return nullptr;
  }
  const auto it = std::lower_bound(index_.begin(), index_.end(), key, [this](uint32_t i, std::string_view k) {
    return std::string_view(members_[i].first) < k;
  });
  return it != index_.end() && members_[*it].first == key ? &members_[*it].second : nullptr;
}

JsonValue* JsonObject::find(std::string_view key) {
  return const_cast<JsonValue*>(static_cast<const JsonObject*>(this)->find(key));
}

void JsonObject::set(std::string key, JsonValue value) {
  if (JsonValue* existing = find(key)) {
    *existing = std::move(value);
    return;
  }
  members_.emplace_back(std::move(key), std::move(value));
  index_from(members_.size() - 1);
}

bool JsonObject::erase(std::string_view key) {
  const auto it =
      std::find_if(members_.begin(), members_.end(), [&](const JsonMember& m) { return m.first == key; });
  if (it == members_.end()) return false;
  members_.erase(it);
  index_.clear();
  index_from(0);
  return true;
}

// ---- values
// --------------------------------------------------------------------------------------------------------

JsonValue::JsonValue(uint64_t v) {
  if (v <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    data_ = static_cast<int64_t>(v);
  } else {
    data_ = static_cast<double>(v);
  }
}

std::string_view JsonValue::type_name() const {
  constexpr std::string_view names[] = {"null",     "a boolean", "an integer", "a number",
                                        "a string", "an array",  "an object"};
  return names[data_.index()];
}

bool operator==(const JsonValue& a, const JsonValue& b) {
  if (a.data_.index() != b.data_.index()) return false;
  if (a.is_object()) {
    if (a.as_object().size() != b.as_object().size()) return false;
    return std::all_of(a.as_object().begin(), a.as_object().end(), [&](const JsonMember& m) {
      const JsonValue* other = b.as_object().find(m.first);
      return other != nullptr && *other == m.second;
    });
  }
  if (a.is_array()) return a.as_array() == b.as_array();
  if (a.is_string()) return a.as_string() == b.as_string();
  if (a.is_double()) return a.as_double() == b.as_double();
  if (a.is_int()) return a.as_int() == b.as_int();
  if (a.is_bool()) return a.as_bool() == b.as_bool();
  return true;
}

// ---- reading
// -------------------------------------------------------------------------------------------------------

// simdjson's tree copied into ours; members go straight into the vector, duplicates are settled once at the
// end.
class JsonBuilder {
 public:
  static JsonValue build(simdjson::dom::element element) {
    using simdjson::dom::element_type;
    switch (element.type()) {
      case element_type::NULL_VALUE:
        return {};
      case element_type::BOOL:
        return JsonValue(bool(element.get_bool().value_unsafe()));
      case element_type::INT64:
        return JsonValue(int64_t{element.get_int64().value_unsafe()});
      case element_type::UINT64:
        return JsonValue(uint64_t{element.get_uint64().value_unsafe()});
      case element_type::DOUBLE:
        return JsonValue(double{element.get_double().value_unsafe()});
      case element_type::STRING:
        return string(element.get_string().value_unsafe());
      case element_type::ARRAY:
        return array(element.get_array().value_unsafe());
      case element_type::OBJECT:
        return object(element.get_object().value_unsafe());
    }
    return {};
  }

 private:
  static constexpr std::string_view kNonFinite = "\x01mlxcel:";

  static JsonValue string(std::string_view text) {
    if (text.starts_with(kNonFinite)) {
      const std::string_view name = text.substr(kNonFinite.size());
      if (name == "NaN") return JsonValue(std::numeric_limits<double>::quiet_NaN());
      if (name == "Infinity") return JsonValue(std::numeric_limits<double>::infinity());
      if (name == "-Infinity") return JsonValue(-std::numeric_limits<double>::infinity());
    }
    return JsonValue(std::string(text));
  }
  static JsonValue array(simdjson::dom::array array) {
    JsonArray out;
    out.reserve(array.size());
    for (const simdjson::dom::element e : array) out.push_back(build(e));
    return JsonValue(std::move(out));
  }
  static JsonValue object(simdjson::dom::object object) {
    JsonObject out;
    out.members_.reserve(object.size());
    for (const auto& field : object) out.members_.emplace_back(std::string(field.key), build(field.value));
    drop_duplicates(out);
    out.index_.clear();
    out.index_from(0);
    return JsonValue(std::move(out));
  }
  // The last of equal keys wins, at the place of the first.
  static void drop_duplicates(JsonObject& object) {
    std::vector<JsonMember>& members = object.members_;
    if (members.size() < 2) return;
    std::vector<uint32_t> order(members.size());
    std::iota(order.begin(), order.end(), 0u);
    std::stable_sort(order.begin(), order.end(),
                     [&](uint32_t a, uint32_t b) { return members[a].first < members[b].first; });
    std::vector<bool> dropped(members.size(), false);
    bool any = false;
    for (size_t i = 0; i < order.size();) {
      size_t j = i + 1;
      while (j < order.size() && members[order[j]].first == members[order[i]].first) ++j;
      if (j - i > 1) {
        any = true;
        members[order[i]].second = std::move(members[order[j - 1]].second);
        for (size_t k = i + 1; k < j; ++k) dropped[order[k]] = true;
      }
      i = j;
    }
    if (!any) return;
    size_t kept = 0;
    for (size_t i = 0; i < members.size(); ++i) {
      if (dropped[i]) continue;
      if (kept != i) members[kept] = std::move(members[i]);
      ++kept;
    }
    members.resize(kept);
  }
};

namespace {

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// The code unit of a \uXXXX escape at `i` (which points at the backslash), or -1.
int escape_at(std::string_view text, size_t i) {
  if (i + 6 > text.size() || text[i] != '\\' || text[i + 1] != 'u') return -1;
  int unit = 0;
  for (size_t k = i + 2; k < i + 6; ++k) {
    const int digit = hex_digit(text[k]);
    if (digit < 0) return -1;
    unit = unit * 16 + digit;
  }
  return unit;
}

// simdjson refuses lone surrogates and Python's non-finite numbers; the first become \ufffd, the second
// marked strings that JsonBuilder turns back. Everything else is left as it is.
class Preprocessor {
 public:
  Preprocessor(std::string_view text, bool allow_non_finite)
      : text_(text), allow_non_finite_(allow_non_finite) {}

  std::string run() {
    out_.reserve(text_.size() + 16);
    while (i_ < text_.size()) {
      const char c = text_[i_];
      if (c == '"') {
        copy_string();
      } else if (allow_non_finite_ && (c == 'N' || c == 'I' || c == '-')) {
        copy_word();
      } else if (c >= '0' && c <= '9') {
        copy_number();
      } else {
        out_.push_back(c);
        ++i_;
      }
    }
    return std::move(out_);
  }

 private:
  void copy(size_t n) {
    out_.append(text_.substr(i_, n));
    i_ += n;
  }
  void copy_word() {
    for (const std::string_view word : {"NaN", "Infinity", "-Infinity"}) {
      if (text_.substr(i_).starts_with(word)) {
        out_.append("\"\\u0001mlxcel:").append(word).append("\"");
        i_ += word.size();
        return;
      }
    }
    copy(1);
  }
  // 2^63 has 19 digits: longer whole numbers do not fit 64 bits.
  void copy_number() {
    size_t end = i_;
    while (end < text_.size() && text_[end] >= '0' && text_[end] <= '9') ++end;
    const bool is_whole =
        end == text_.size() || (text_[end] != '.' && text_[end] != 'e' && text_[end] != 'E');
    const size_t digits = end - i_;
    copy(digits);
    if (!is_whole) {
      while (i_ < text_.size() &&
             std::string_view("+-.eE0123456789").find(text_[i_]) != std::string_view::npos)
        copy(1);
    } else if (digits > 19) {
      out_.append(".0");
    }
  }
  void copy_string() {
    copy(1);
    while (i_ < text_.size()) {
      const char c = text_[i_];
      if (c == '"') {
        copy(1);
        return;
      }
      if (c != '\\') {
        copy(1);
        continue;
      }
      const int unit = escape_at(text_, i_);
      if (unit >= 0xD800 && unit <= 0xDBFF) {
        const int next = escape_at(text_, i_ + 6);
        if (next >= 0xDC00 && next <= 0xDFFF) {
          copy(12);
        } else {
          replace();
        }
      } else if (unit >= 0xDC00 && unit <= 0xDFFF) {
        replace();
      } else {
        copy(std::min<size_t>(2, text_.size() - i_));
      }
    }
  }
  void replace() {
    out_.append("\\ufffd");
    i_ += 6;
  }

  std::string_view text_;
  bool allow_non_finite_;
  size_t i_ = 0;
  std::string out_;
};

bool needs_preprocessing(std::string_view text, bool allow_non_finite) {
  if (text.find("\\ud") != std::string_view::npos || text.find("\\uD") != std::string_view::npos) return true;
  return allow_non_finite &&
         (text.find("NaN") != std::string_view::npos || text.find("Infinity") != std::string_view::npos);
}

}  // namespace

Result<JsonValue> parse_json(std::string_view text, std::string_view where, const JsonLimits& limits) {
  if (text.size() > limits.max_bytes) {
    return make_error(ErrorKind::kInvalidData, "JSON text is too large", std::string(where),
                      fmt::format("at most {} bytes", limits.max_bytes),
                      fmt::format("{} bytes", text.size()));
  }
  std::string prepared;
  bool is_prepared = needs_preprocessing(text, limits.allow_non_finite);
  if (is_prepared) prepared = Preprocessor(text, limits.allow_non_finite).run();
  simdjson::dom::parser parser;
  // Room for what preparing may add to the text.
  if (parser.allocate(std::max<size_t>(text.size() * 2, 64), limits.max_depth) != simdjson::SUCCESS) {
    return make_error(ErrorKind::kOutOfMemory, "no memory to parse JSON", std::string(where));
  }
  simdjson::dom::element root;
  simdjson::padded_string padded(is_prepared ? std::string_view(prepared) : text);
  simdjson::error_code code = parser.parse(padded).get(root);
  if (!is_prepared && (code == simdjson::NUMBER_ERROR || code == simdjson::NUMBER_OUT_OF_RANGE)) {
    prepared = Preprocessor(text, limits.allow_non_finite).run();
    padded = simdjson::padded_string(std::string_view(prepared));
    code = parser.parse(padded).get(root);
  }
  if (code == simdjson::DEPTH_ERROR) {
    return make_error(ErrorKind::kInvalidData, "JSON is nested too deeply", std::string(where),
                      fmt::format("at most {} levels", limits.max_depth));
  }
  if (code != simdjson::SUCCESS) {
    return make_error(ErrorKind::kInvalidData, "malformed JSON", std::string(where), {},
                      simdjson::error_message(code));
  }
  return JsonBuilder::build(root);
}

Result<JsonValue> parse_json_file(const std::string& path, const JsonLimits& limits) {
  MLXCEL_ASSIGN_OR_RETURN(const std::string text, read_file(path, limits.max_bytes));
  return parse_json(text, path, limits);
}

// ---- writing
// -------------------------------------------------------------------------------------------------------

namespace {

void write_escape(std::string& out, char32_t code) {
  const auto unit = [&out](uint32_t u) { fmt::format_to(std::back_inserter(out), "\\u{:04x}", u); };
  if (code < 0x10000) {
    unit(static_cast<uint32_t>(code));
  } else {
    unit(0xD800 + static_cast<uint32_t>((code - 0x10000) >> 10));
    unit(0xDC00 + static_cast<uint32_t>((code - 0x10000) & 0x3FF));
  }
}

template <typename Float>
void write_finite(std::string& out, Float value) {
  if (!std::isfinite(value)) {
    out.append("null");
    return;
  }
  const size_t begin = out.size();
  fmt::format_to(std::back_inserter(out), "{}", value);
  if (out.find_first_of(".e", begin) == std::string::npos) out.append(".0");
}

class Writer {
 public:
  Writer(std::string& out, const JsonWriteOptions& options) : out_(out), options_(options) {}

  void write(const JsonValue& value, int depth) {
    if (value.is_null()) {
      out_.append("null");
    } else if (value.is_bool()) {
      out_.append(value.as_bool() ? "true" : "false");
    } else if (value.is_int()) {
      fmt::format_to(std::back_inserter(out_), "{}", value.as_int());
    } else if (value.is_double()) {
      write_finite(out_, value.as_double());
    } else if (value.is_string()) {
      write_json_string(out_, value.as_string(), options_.ascii_only);
    } else if (value.is_array()) {
      write_array(value.as_array(), depth);
    } else {
      write_object(value.as_object(), depth);
    }
  }

 private:
  void new_line(int depth) {
    if (options_.indent < 0) return;
    out_.push_back('\n');
    out_.append(static_cast<size_t>(depth) * static_cast<size_t>(options_.indent), ' ');
  }
  void write_array(const JsonArray& array, int depth) {
    out_.push_back('[');
    for (size_t i = 0; i < array.size(); ++i) {
      if (i > 0) out_.push_back(',');
      new_line(depth + 1);
      write(array[i], depth + 1);
    }
    if (!array.empty()) new_line(depth);
    out_.push_back(']');
  }
  void write_object(const JsonObject& object, int depth) {
    out_.push_back('{');
    bool first = true;
    for (const JsonMember& member : object) {
      if (!first) out_.push_back(',');
      first = false;
      new_line(depth + 1);
      write_json_string(out_, member.first, options_.ascii_only);
      out_.append(options_.indent < 0 ? ":" : ": ");
      write(member.second, depth + 1);
    }
    if (!object.empty()) new_line(depth);
    out_.push_back('}');
  }

  std::string& out_;
  const JsonWriteOptions& options_;
};

}  // namespace

void write_json_string(std::string& out, std::string_view text, bool ascii_only) {
  out.push_back('"');
  for (size_t i = 0; i < text.size();) {
    const Utf8Char c = decode_utf8(text, i);
    switch (c.code) {
      case '"':
        out.append("\\\"");
        break;
      case '\\':
        out.append("\\\\");
        break;
      case '\n':
        out.append("\\n");
        break;
      case '\r':
        out.append("\\r");
        break;
      case '\t':
        out.append("\\t");
        break;
      case '\b':
        out.append("\\b");
        break;
      case '\f':
        out.append("\\f");
        break;
      default:
        if (c.code < 0x20 || c.code == 0x7F || (ascii_only && c.code > 0x7E)) {
          write_escape(out, c.code);
        } else if (c.valid) {
          out.append(text.substr(i, c.size));
        } else {
          out.append("\xEF\xBF\xBD");
        }
    }
    i += c.size;
  }
  out.push_back('"');
}

void write_json_float(std::string& out, float value) { write_finite(out, value); }

void write_json(std::string& out, const JsonValue& value, const JsonWriteOptions& options) {
  Writer(out, options).write(value, 0);
}

std::string to_json(const JsonValue& value, const JsonWriteOptions& options) {
  std::string out;
  write_json(out, value, options);
  return out;
}

// ---- typed keys
// ----------------------------------------------------------------------------------------------------

Error JsonReader::type_error(std::string_view key, std::string_view expected) const {
  const JsonValue* value = object_.find_set(key);
  return make_error(ErrorKind::kInvalidData, value == nullptr ? "missing key" : "key has the wrong type",
                    fmt::format("{}: \"{}\"", where_, key), std::string(expected),
                    value == nullptr ? "nothing" : std::string(value->type_name()));
}

Result<int64_t> JsonReader::integer(std::string_view key, std::optional<int64_t> fallback) const {
  const JsonValue* value = object_.find_set(key);
  if (value == nullptr && fallback) return *fallback;
  if (value != nullptr && value->is_int()) return value->as_int();
  if (value != nullptr && value->is_double()) {
    const double d = value->as_double();
    if (std::floor(d) == d && std::fabs(d) < 9.0e15) return static_cast<int64_t>(d);
  }
  return type_error(key, "an integer");
}

Result<double> JsonReader::number(std::string_view key, std::optional<double> fallback) const {
  const JsonValue* value = object_.find_set(key);
  if (value == nullptr && fallback) return *fallback;
  if (value != nullptr && value->is_number()) return value->as_double();
  return type_error(key, "a number");
}

Result<bool> JsonReader::boolean(std::string_view key, std::optional<bool> fallback) const {
  const JsonValue* value = object_.find_set(key);
  if (value == nullptr && fallback) return *fallback;
  if (value != nullptr && value->is_bool()) return value->as_bool();
  return type_error(key, "a boolean");
}

Result<std::string> JsonReader::string(std::string_view key, std::optional<std::string> fallback) const {
  const JsonValue* value = object_.find_set(key);
  if (value == nullptr && fallback) return *fallback;
  if (value != nullptr && value->is_string()) return value->as_string();
  return type_error(key, "a string");
}

Result<std::vector<double>> JsonReader::numbers(std::string_view key) const {
  const JsonValue* value = object_.find_set(key);
  std::vector<double> out;
  if (value == nullptr) return out;
  if (!value->is_array()) return type_error(key, "an array of numbers");
  for (const JsonValue& v : value->as_array()) {
    if (!v.is_number()) return type_error(key, "an array of numbers");
    out.push_back(v.as_double());
  }
  return out;
}

}  // namespace mlxcel
