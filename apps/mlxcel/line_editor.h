// Lines from a terminal with editing and history, over libedit (readline would make the program GPL).
//
// Owner: the REPL. Threads: the main thread.
#pragma once

#include <memory>
#include <string>

namespace mlxcel {

class LineEditor {
 public:
  // history_path may be empty: nothing is kept on disk.
  explicit LineEditor(std::string history_path);
  ~LineEditor();  // writes the history
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  enum class Outcome { kLine, kInterrupted, kEnd };
  struct Line {
    Outcome outcome = Outcome::kEnd;
    std::string text;  // without the newline
  };
  Line read(const std::string& prompt);
  void remember(const std::string& text);  // one history entry

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace mlxcel
