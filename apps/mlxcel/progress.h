// One line per file or load: "name  42% [####    ] 1.2/2.9 GB  85 MB/s  eta 20s". Redrawn at most ten times a
// second on a terminal; elsewhere one line per ten per cent.
//
// Owner: the command. Threads: one.
#pragma once

#include <cstdint>
#include <string>

#include "terminal.h"

namespace mlxcel {

class ProgressLine {
 public:
  // quiet_seconds: nothing is shown before (short work needs no bar).
  ProgressLine(Terminal& terminal, std::string name, double quiet_seconds = 0.0);
  ~ProgressLine();  // leaves an unfinished bar on its line
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  // already: bytes that were there before; they count for the bar and not for the speed. total 0: unknown.
  void update(uint64_t done, uint64_t total, uint64_t already = 0);
  void finish();
  // Removes the bar without a trace (a terminal only).
  void erase();

  // The line itself, for tests: `width` columns at most.
  static std::string format(const std::string& name, uint64_t done, uint64_t total, uint64_t already,
                            double seconds, int width);

 private:
  void draw(bool final);
  Terminal& terminal_;
  std::string name_;
  double quiet_seconds_, begin_, last_draw_ = -1.0;
  uint64_t done_ = 0, total_ = 0, already_ = 0;
  int last_tenth_ = -1;
  bool is_drawn_ = false, is_finished_ = false;
};

}  // namespace mlxcel
