// The tojson filter as transformers sets it up: json.dumps without HTML escaping, keys in their order, and
// Python's separators.
#include <algorithm>
#include <cmath>

#include "base/utf8.h"
#include "chat/jinja/runtime.h"

namespace mlxcel::jinja {
namespace {

class JsonDump {
 public:
  JsonDump(Runtime& runtime, const Parameters& options) : runtime_(runtime) {
    ascii_ = options.flag(0, false);
    has_indent_ = options.set(1);
    if (has_indent_) {
      const Value& indent = options[1];
      if (indent.is_string()) {
        indent_ = indent.str();
      } else {
        const int64_t width = std::max<int64_t>(options.integer(1, 0), 0);
        runtime.check_bytes(static_cast<size_t>(width));
        indent_.assign(static_cast<size_t>(width), ' ');
      }
      item_separator_ = ",";
    }
    if (options.set(2)) {
      const std::vector<Value> separators = runtime.collect(options[2]);
      if (separators.size() != 2 || !separators[0].is_string() || !separators[1].is_string()) {
        fail("tojson: separators must be two strings");
      }
      item_separator_ = separators[0].str();
      key_separator_ = separators[1].str();
    }
    sort_keys_ = options.flag(3, false);
  }

  Text run(const Value& value) {
    write(value, 0);
    return Text(std::move(out_), has_content_);
  }

 private:
  void add(std::string_view piece) {
    runtime_.check_bytes(out_.size() + piece.size());
    out_.append(piece);
  }

  void new_line(size_t level) {
    if (!has_indent_) return;
    add("\n");
    for (size_t i = 0; i < level; ++i) add(indent_);
  }

  void write_string(const Text& text) {
    has_content_ |= text.has_content();
    runtime_.step_bytes(text.size());
    std::string quoted = "\"";
    for (size_t at = 0; at < text.size();) {
      const Utf8Char c = decode_utf8(text.bytes(), at);
      write_character(quoted, c.code);
      at += c.size;
    }
    add(quoted + "\"");
  }

  void write_character(std::string& out, char32_t c) const {
    static constexpr std::string_view kFrom = "\"\\\n\r\t\b\f", kTo = "\"\\nrtbf";
    if (c < 0x80) {
      if (const size_t simple = kFrom.find(static_cast<char>(c)); simple != std::string_view::npos) {
        out += {'\\', kTo[simple]};
        return;
      }
    }
    if (c >= 0x20 && (c < 0x7F || !ascii_)) return append_utf8(out, c);
    if (c == 0x7F) return out.push_back('\x7f');
    if (c < 0x10000) return write_unit(out, c);
    write_unit(out, 0xD800 + ((c - 0x10000) >> 10));
    write_unit(out, 0xDC00 + ((c - 0x10000) & 0x3FF));
  }

  static void write_unit(std::string& out, char32_t unit) {
    static constexpr char kHex[] = "0123456789abcdef";
    out += "\\u";
    for (int shift = 12; shift >= 0; shift -= 4) out.push_back(kHex[(unit >> shift) & 15]);
  }

  static std::string number(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
    return float_repr(value);
  }

  void write(const Value& value, size_t level) {
    runtime_.step();
    switch (value.kind()) {
      case Kind::kNone:
        return add("null");
      case Kind::kBool:
        return add(value.as_bool() ? "true" : "false");
      case Kind::kInteger:
        return add(std::to_string(value.as_integer()));
      case Kind::kBigInteger:
        return add(value.str());
      case Kind::kFloat:
        return add(number(value.as_double()));
      case Kind::kString:
        return write_string(value.text());
      case Kind::kList:
      case Kind::kTuple:
        return write_list(value.items(), level);
      case Kind::kDict:
        return write_dict(value.dict(), level);
      default:
        fail("Object of type " + std::string(type_name(value)) + " is not JSON serializable");
    }
  }

  void write_list(const std::vector<Value>& items, size_t level) {
    if (items.empty()) return add("[]");
    add("[");
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) add(item_separator_);
      new_line(level + 1);
      write(items[i], level + 1);
    }
    new_line(level);
    add("]");
  }

  void write_dict(const DictObject& dict, size_t level) {
    if (dict.items.empty()) return add("{}");
    std::vector<const std::pair<Value, Value>*> members;
    for (const auto& member : dict.items) members.push_back(&member);
    if (sort_keys_) {
      std::stable_sort(members.begin(), members.end(),
                       [](const auto* a, const auto* b) { return less(a->first, b->first); });
    }
    add("{");
    for (size_t i = 0; i < members.size(); ++i) {
      if (i > 0) add(item_separator_);
      new_line(level + 1);
      write_key(members[i]->first);
      add(key_separator_);
      write(members[i]->second, level + 1);
    }
    new_line(level);
    add("}");
  }

  // Keys that are no strings become the text of their JSON value.
  void write_key(const Value& key) {
    if (key.is_string()) return write_string(key.text());
    if (!key.is_number() && !key.is_none()) {
      fail("keys must be str, int, float, bool or None, not " + std::string(type_name(key)));
    }
    add("\"");
    write(key, 0);
    add("\"");
  }

  Runtime& runtime_;
  bool ascii_ = false, has_indent_ = false, sort_keys_ = false;
  std::string indent_, item_separator_ = ", ", key_separator_ = ": ";
  std::string out_;
  bool has_content_ = false;
};

}  // namespace

Value filter_tojson(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Parameters options("tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  return runtime.string(JsonDump(runtime, options).run(subject));
}

}  // namespace mlxcel::jinja
