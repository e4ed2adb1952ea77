#include "client/event_stream.h"

namespace mlxcel {

bool EventStreamParser::feed(std::string_view bytes) {
  for (const char c : bytes) {
    if (is_broken_) return false;
    const bool ends_pair = after_cr_ && c == '\n';  // the second half of "\r\n"
    after_cr_ = c == '\r';
    if (ends_pair) continue;
    if (c == '\n' || c == '\r') {
      take_line(line_);
      line_.clear();
    } else {
      line_ += c;
      is_broken_ = line_.size() + data_.size() > kMaxEventBytes;
    }
  }
  return !is_broken_;
}

void EventStreamParser::take_line(std::string_view line) {
  if (line.empty()) {
    if (has_data_) on_event_(name_, data_);
    name_.clear();
    data_.clear();
    has_data_ = false;
    return;
  }
  const size_t colon = line.find(':');
  const std::string_view field = line.substr(0, colon);
  std::string_view value = colon == std::string_view::npos ? std::string_view() : line.substr(colon + 1);
  if (value.starts_with(' ')) value.remove_prefix(1);
  if (field == "data") {
    if (has_data_) data_ += '\n';
    data_ += value;
    has_data_ = true;
  } else if (field == "event") {
    name_ = value;
  }
}

}  // namespace mlxcel
