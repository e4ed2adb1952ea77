#include "interrupt.h"

#include <unistd.h>

#include <csignal>

namespace mlxcel {
namespace {

// A signal handler can reach nothing but static data; it is private to this file.
volatile std::sig_atomic_t depth = 0;
volatile std::sig_atomic_t interrupted = 0;

extern "C" void handle_interrupt(int) {
  if (depth == 0 || interrupted != 0) ::_exit(130);
  interrupted = 1;
}

}  // namespace

void install_interrupt_handler() {
  struct sigaction action {};
  action.sa_handler = handle_interrupt;
  sigemptyset(&action.sa_mask);
  action.sa_flags = 0;  // reads return, so that the line editor notices
  ::sigaction(SIGINT, &action, nullptr);
}

InterruptScope::InterruptScope() {
  interrupted = 0;
  depth = depth + 1;
}
InterruptScope::~InterruptScope() { depth = depth - 1; }
bool InterruptScope::was_interrupted() { return interrupted != 0; }
void InterruptScope::clear() { interrupted = 0; }

}  // namespace mlxcel
