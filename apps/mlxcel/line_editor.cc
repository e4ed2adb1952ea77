#include "line_editor.h"

#include <histedit.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "base/error.h"
#include "base/file.h"
#include "base/utf8.h"
#include "interrupt.h"

namespace mlxcel {
namespace {
constexpr int kMaxHistory = 1000;
}

struct LineEditor::State {
  std::string history_path, prompt;
  EditLine* editor = nullptr;
  History* history = nullptr;
};

namespace {

// libedit hands its client pointer back; the prompt lives there.
char* current_prompt(EditLine* editor) {
  void* client = nullptr;
  el_get(editor, EL_CLIENTDATA, &client);
  return static_cast<std::string*>(client)->data();
}

// True when a byte can be read; false: Ctrl-C.
bool wait_for_input() {
  pollfd files[2] = {{STDIN_FILENO, POLLIN, 0}, {InterruptScope::wake_descriptor(), POLLIN, 0}};
  while (::poll(files, 2, -1) < 0 && errno == EINTR) {
  }
  return files[1].revents == 0;
}

// libedit's own reader tries again after a signal, so the first Ctrl-C at the prompt would do nothing.
int read_character(EditLine*, wchar_t* character) {
  std::string bytes;
  while (wait_for_input()) {
    char byte = 0;
    const ssize_t got = ::read(STDIN_FILENO, &byte, 1);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return static_cast<int>(got);
    bytes += byte;
    if (incomplete_utf8_tail(bytes) > 0) continue;
    *character = static_cast<wchar_t>(decode_utf8(bytes, 0).code);
    return 1;
  }
  errno = EINTR;
  return -1;
}

}  // namespace

LineEditor::LineEditor(std::string history_path) : state_(std::make_unique<State>()) {
  State& s = *state_;
  s.history_path = std::move(history_path);
  s.history = history_init();
  s.editor = el_init("mlxcel", stdin, stderr, stderr);  // the prompt is no answer: stderr
  MLXCEL_CHECK(s.history != nullptr && s.editor != nullptr);
  HistEvent event;
  ::history(s.history, &event, H_SETSIZE, kMaxHistory);
  ::history(s.history, &event, H_SETUNIQUE, 1);
  if (!s.history_path.empty()) ::history(s.history, &event, H_LOAD, s.history_path.c_str());
  el_set(s.editor, EL_CLIENTDATA, &s.prompt);
  el_set(s.editor, EL_PROMPT, current_prompt);
  el_set(s.editor, EL_EDITOR, "emacs");
  el_set(s.editor, EL_SIGNAL, 0);
  el_set(s.editor, EL_GETCFN, read_character);
  el_set(s.editor, EL_HIST, ::history, s.history);
  el_source(s.editor, nullptr);  // ~/.editrc
}

LineEditor::~LineEditor() {
  HistEvent event;
  if (!state_->history_path.empty()) {
    const size_t slash = state_->history_path.rfind('/');
    if (slash != std::string::npos && slash > 0)
      (void)make_directories(state_->history_path.substr(0, slash)).ok();
    ::history(state_->history, &event, H_SAVE,
              state_->history_path.c_str());  // libedit makes it private (0600)
  }
  el_end(state_->editor);
  history_end(state_->history);
}

LineEditor::Line LineEditor::read(const std::string& prompt) {
  state_->prompt = prompt;
  InterruptScope::clear();
  el_resize(state_->editor);  // the window may have changed during the answer
  // Before the prompt is seen: a Ctrl-D that meets the line discipline of the answer would be lost.
  el_set(state_->editor, EL_PREP_TERM, 1);
  int count = 0;
  const char* text = el_gets(state_->editor, &count);
  if (text != nullptr && count > 0) {
    std::string line(text, static_cast<size_t>(count));
    if (line.back() == '\n') line.pop_back();
    return {Outcome::kLine, std::move(line)};
  }
  if (!InterruptScope::was_interrupted()) return {Outcome::kEnd, {}};
  InterruptScope::clear();
  return {Outcome::kInterrupted, {}};
}

void LineEditor::remember(const std::string& text) {
  HistEvent event;
  ::history(state_->history, &event, H_ENTER, text.c_str());
}

}  // namespace mlxcel
