#include "progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "base/environment.h"
#include "base/utf8.h"

namespace mlxcel {
namespace {

constexpr double kRedrawSeconds = 0.1;
constexpr int kBarColumns = 24;

// Decimal, as download sizes are given everywhere.
std::string decimal_bytes(double bytes) {
  if (bytes >= 1e9) return fmt::format("{:.1f} GB", bytes / 1e9);
  if (bytes >= 1e6) return fmt::format("{:.1f} MB", bytes / 1e6);
  if (bytes >= 1e3) return fmt::format("{:.1f} kB", bytes / 1e3);
  return fmt::format("{:.0f} B", bytes);
}

std::string duration(double seconds) {
  if (seconds < 100.0) return fmt::format("{:.0f}s", seconds);
  if (seconds < 6000.0) return fmt::format("{:.0f}m", seconds / 60.0);
  return fmt::format("{:.0f}h", std::min(seconds / 3600.0, 999.0));
}

}  // namespace

std::string ProgressLine::format(const std::string& name, uint64_t done, uint64_t total, uint64_t already,
                                 double seconds, int width) {
  const double fresh = static_cast<double>(done - std::min(done, already));
  const double speed = seconds > 0.0 ? fresh / seconds : 0.0;
  std::string tail;
  if (total > 0) {
    tail = fmt::format("  {}/{}", decimal_bytes(static_cast<double>(done)),
                       decimal_bytes(static_cast<double>(total)));
  } else {
    tail = fmt::format("  {}", decimal_bytes(static_cast<double>(done)));
  }
  if (speed > 0.0) tail += fmt::format("  {}/s", decimal_bytes(speed));
  if (speed > 0.0 && total > done)
    tail += fmt::format("  eta {}", duration(static_cast<double>(total - done) / speed));
  std::string head = name;
  if (total > 0) {
    const double share = std::min(1.0, static_cast<double>(done) / static_cast<double>(total));
    head += fmt::format("  {:3.0f}%", share * 100.0);
    const int room = width - display_width(head) - static_cast<int>(tail.size()) - 4;
    const int columns = std::min(kBarColumns, room);
    if (columns >= 4) {
      const int filled = static_cast<int>(share * columns);
      head += fmt::format(" [{}{}]", std::string(static_cast<size_t>(filled), '#'),
                          std::string(static_cast<size_t>(columns - filled), ' '));
    }
  }
  std::string line = head + tail;
  while (width > 0 && display_width(line) > width && line.size() > 1) line.pop_back();
  return repair_utf8(line);
}

ProgressLine::ProgressLine(Terminal& terminal, std::string name, double quiet_seconds)
    : terminal_(terminal),
      name_(std::move(name)),
      quiet_seconds_(quiet_seconds),
      begin_(monotonic_seconds()) {}

ProgressLine::~ProgressLine() {
  if (is_drawn_ && !is_finished_ && terminal_.can_redraw()) std::fputs("\n", stderr);
}

void ProgressLine::draw(bool final) {
  const double now = monotonic_seconds();
  if (!is_drawn_ && now - begin_ < quiet_seconds_) return;
  if (terminal_.can_redraw()) {
    if (!final && last_draw_ >= 0.0 && now - last_draw_ < kRedrawSeconds) return;
    last_draw_ = now;
    const std::string line =
        format(name_, done_, total_, already_, now - begin_, std::max(1, terminal_.width() - 1));
    std::fprintf(stderr, "\r%s\x1b[K", line.c_str());
    std::fflush(stderr);
  } else {
    const int tenth =
        total_ > 0 ? static_cast<int>(static_cast<double>(done_) * 10.0 / static_cast<double>(total_)) : -1;
    if (!final && (tenth <= last_tenth_ || tenth == 10)) return;
    last_tenth_ = tenth;
    terminal_.note(format(name_, done_, total_, already_, now - begin_, 1000));
  }
  is_drawn_ = true;
}

void ProgressLine::update(uint64_t done, uint64_t total, uint64_t already) {
  done_ = done;
  total_ = total;
  already_ = already;
  draw(false);
}

void ProgressLine::finish() {
  if (is_finished_) return;
  draw(true);
  is_finished_ = true;
  if (is_drawn_ && terminal_.can_redraw()) std::fputs("\n", stderr);
}

void ProgressLine::erase() {
  if (is_drawn_ && !is_finished_ && terminal_.can_redraw()) std::fputs("\r\x1b[K", stderr);
  is_finished_ = true;
}

}  // namespace mlxcel
