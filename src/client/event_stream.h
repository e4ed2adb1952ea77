// Server-sent events out of a byte stream: the part of the HTML standard (section 9.2.6, "Interpreting an
// event stream") that OpenAI-compatible servers use. Comments, ids and retry times are skipped.
//
// Owner: one response. Threads: one.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace mlxcel {

class EventStreamParser {
 public:
  // An event of more bytes than this is an error: the peer does not speak the protocol.
  static constexpr size_t kMaxEventBytes = size_t{16} << 20;

  // Called with the event's name ("" when it has none) and its data lines joined by '\n'.
  using OnEvent = std::function<void(std::string_view name, std::string_view data)>;
  explicit EventStreamParser(OnEvent on_event) : on_event_(std::move(on_event)) {}

  // Takes the next bytes, however they were cut. False: the event is too long; nothing more is read.
  bool feed(std::string_view bytes);

 private:
  void take_line(std::string_view line);
  OnEvent on_event_;
  std::string line_, name_, data_;
  bool has_data_ = false, after_cr_ = false, is_broken_ = false;
};

}  // namespace mlxcel
