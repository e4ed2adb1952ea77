#include "interrupt.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "base/error.h"

namespace mlxcel {
namespace {

// A signal handler can reach nothing but static data; it is private to this file.
volatile std::sig_atomic_t depth = 0;
volatile std::sig_atomic_t interrupted = 0;
int wake_pipe[2] = {-1, -1};  // written by the handler, never blocks

extern "C" void handle_interrupt(int) {
  if (depth == 0 || interrupted != 0) ::_exit(130);
  interrupted = 1;
  const int saved = errno;
  [[maybe_unused]] const ssize_t written = ::write(wake_pipe[1], "", 1);
  errno = saved;
}

}  // namespace

void install_interrupt_handler() {
  MLXCEL_CHECK(::pipe2(wake_pipe, O_CLOEXEC | O_NONBLOCK) == 0);
  struct sigaction action {};
  action.sa_handler = handle_interrupt;
  sigemptyset(&action.sa_mask);
  action.sa_flags = 0;  // reads return, so that the line editor notices
  ::sigaction(SIGINT, &action, nullptr);
}

InterruptScope::InterruptScope() {
  clear();
  depth = depth + 1;
}
InterruptScope::~InterruptScope() { depth = depth - 1; }
bool InterruptScope::was_interrupted() { return interrupted != 0; }
int InterruptScope::wake_descriptor() { return wake_pipe[0]; }
void InterruptScope::clear() {
  char drained[16];
  while (::read(wake_pipe[0], drained, sizeof drained) > 0) {
  }
  interrupted = 0;
}

}  // namespace mlxcel
