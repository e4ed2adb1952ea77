#include "base/log.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <mutex>

#include "base/json.h"

namespace mlxcel {

namespace {

std::string_view level_name(LogLevel level) {
  switch (level) {
    case LogLevel::kError:
      return "error";
    case LogLevel::kWarning:
      return "warning";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kDebug:
      return "debug";
    case LogLevel::kTrace:
      return "trace";
  }
  return "log";
}

// The process has one stderr, so it has one log: the only mutable state of base/ that is shared.
struct LogState {
  std::atomic<LogLevel> level{LogLevel::kWarning};
  std::atomic<LogFormat> format{LogFormat::kPlain};
  std::mutex mutex;
  LogSink sink;
  int file = STDERR_FILENO;
};
LogState& state() {
  static LogState instance;
  return instance;
}

}  // namespace

void set_log_level(LogLevel level) { state().level.store(level, std::memory_order_relaxed); }
LogLevel log_level() { return state().level.load(std::memory_order_relaxed); }

void set_log_sink(LogSink sink) {
  const std::lock_guard lock(state().mutex);
  state().sink = std::move(sink);
}

void set_log_format(LogFormat format) { state().format.store(format, std::memory_order_relaxed); }

std::string format_log_line(LogFormat format, LogLevel level, std::string_view message, double seconds) {
  if (format == LogFormat::kPlain) return fmt::format("{}: {}\n", level_name(level), message);
  const auto whole = static_cast<std::time_t>(std::floor(seconds));
  const int milliseconds = static_cast<int>((seconds - std::floor(seconds)) * 1e3);
  std::tm utc{};
  ::gmtime_r(&whole, &utc);
  const std::string time =
      fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", utc.tm_year + 1900, utc.tm_mon + 1,
                  utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec, milliseconds);
  if (format == LogFormat::kTimed) return fmt::format("{} {} {}\n", time, level_name(level), message);
  std::string line = fmt::format("{{\"time\":\"{}\",\"level\":\"{}\",\"message\":", time, level_name(level));
  write_json_string(line, message);
  return line + "}\n";
}

Status set_log_file(const std::string& path) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file < 0) return make_error(ErrorKind::kIo, "cannot write the log", path, "", std::strerror(errno));
  const std::lock_guard lock(state().mutex);
  if (state().file != STDERR_FILENO) ::close(state().file);
  state().file = file;
  return ok_status();
}

void log_message(LogLevel level, std::string_view message) {
  if (!log_enabled(level)) return;
  const std::lock_guard lock(state().mutex);
  if (state().sink) {
    state().sink(level, message);
    return;
  }
  const double now =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  const std::string line =
      format_log_line(state().format.load(std::memory_order_relaxed), level, message, now);
  for (size_t done = 0; done < line.size();) {  // a full disk loses lines, not requests
    const ssize_t n = ::write(state().file, line.data() + done, line.size() - done);
    if (n <= 0) break;
    done += static_cast<size_t>(n);
  }
}

}  // namespace mlxcel
