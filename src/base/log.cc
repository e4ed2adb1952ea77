#include "base/log.h"

#include <atomic>
#include <cstdio>
#include <mutex>

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
  std::mutex mutex;
  LogSink sink;
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

void log_message(LogLevel level, std::string_view message) {
  if (!log_enabled(level)) return;
  const std::lock_guard lock(state().mutex);
  if (state().sink) {
    state().sink(level, message);
    return;
  }
  const std::string line = fmt::format("{}: {}\n", level_name(level), message);
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace mlxcel
