// Log lines to stderr, a file or a callback, one write per line. Never a prompt, never a key.
// Threads: any; lines are not interleaved. The level is set once at start-up by apps/ and may be raised
// later.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <string>
#include <string_view>

#include "base/error.h"

namespace mlxcel {

enum class LogLevel { kError, kWarning, kInfo, kDebug, kTrace };

void set_log_level(LogLevel level);
LogLevel log_level();
// kPlain: "level: message". kTimed: "2026-12-04T22:45:01.123Z level message". kJson: an object a line with
// time, level and message.
enum class LogFormat { kPlain, kTimed, kJson };
void set_log_format(LogFormat format);
// One line in that format, with its newline. `seconds`: since 1970-01-01 UTC.
std::string format_log_line(LogFormat format, LogLevel level, std::string_view message, double seconds);
// From now on lines are appended to this file (made when absent, so that a rotated file may be truncated in
// place) instead of stderr.
Status set_log_file(const std::string& path);
// Replaces the sink; the default writes "level: message" to stderr. Tests use it to see the lines.
using LogSink = std::function<void(LogLevel, std::string_view)>;
void set_log_sink(LogSink sink);
void log_message(LogLevel level, std::string_view message);
inline bool log_enabled(LogLevel level) { return static_cast<int>(level) <= static_cast<int>(log_level()); }

template <typename... Args>
void log_error(fmt::format_string<Args...> f, Args&&... args) {
  log_message(LogLevel::kError, fmt::format(f, std::forward<Args>(args)...));
}
template <typename... Args>
void log_warning(fmt::format_string<Args...> f, Args&&... args) {
  if (log_enabled(LogLevel::kWarning))
    log_message(LogLevel::kWarning, fmt::format(f, std::forward<Args>(args)...));
}
template <typename... Args>
void log_info(fmt::format_string<Args...> f, Args&&... args) {
  if (log_enabled(LogLevel::kInfo)) log_message(LogLevel::kInfo, fmt::format(f, std::forward<Args>(args)...));
}
template <typename... Args>
void log_debug(fmt::format_string<Args...> f, Args&&... args) {
  if (log_enabled(LogLevel::kDebug))
    log_message(LogLevel::kDebug, fmt::format(f, std::forward<Args>(args)...));
}

}  // namespace mlxcel
