// Ctrl-C. Outside an InterruptScope it ends the program at once with status 130; inside one the first sets a
// flag that the running answer looks at, and the second ends the program.
//
// Owner: main(). Threads: scopes are opened by the main thread; the flag may be read by any.
#pragma once

namespace mlxcel {

void install_interrupt_handler();

class InterruptScope {
 public:
  InterruptScope();  // clears the flag
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;
  static bool was_interrupted();
  static void clear();
  // Becomes readable with the flag: for poll() beside another descriptor, without a moment at which a signal
  // is missed.
  static int wake_descriptor();
};

}  // namespace mlxcel
