// Manners towards the terminal: answers to stdout, everything else to stderr; colours and redrawn lines only
// where a person looks at them.
//
// Owner: main(). Threads: the main thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"
#include "options/settings.h"

namespace mlxcel {

enum class Style { kPlain, kBold, kDim, kRed, kGreen };

class Terminal {
 public:
  // Without settings: the environment is not asked and there are no colours.
  Terminal() = default;
  explicit Terminal(const Settings& settings);

  bool stdin_is_terminal() const { return stdin_is_terminal_; }
  bool stdout_is_terminal() const { return stdout_is_terminal_; }
  // stderr is a terminal whose lines can be redrawn.
  bool can_redraw() const { return can_redraw_; }
  int width() const;                                             // of stderr; 80 when unknown
  std::string styled(std::string_view text, Style style) const;  // for stderr

  // Writes all bytes and flushes; a failed write (a full disk, a closed pipe) is remembered.
  void print(std::string_view text);  // to stdout
  void note(std::string_view text);   // to stderr, with a newline
  // A model's words. On a terminal, control characters other than newline and tab are replaced, so that an
  // answer cannot move the cursor or change the title.
  void print_answer(std::string_view text);
  bool output_failed() const { return output_failed_; }

 private:
  bool stdin_is_terminal_ = false, stdout_is_terminal_ = false, can_redraw_ = false, colours_ = false;
  bool output_failed_ = false;
};

// Three lines at most: what and where, expected and found, what to do.
void print_error(Terminal& terminal, const Error& error);
// 0 success, 1 run-time failure, 2 usage, 3 model missing or invalid, 4 not enough memory, 130 cancelled.
int exit_code_of(ErrorKind kind);

}  // namespace mlxcel
