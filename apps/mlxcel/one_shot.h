// One question, one answer: what `generate` always does and `run` does when it is given a prompt.
//
// Owner: the command. Threads: the main thread.
#pragma once

#include <optional>
#include <string>

#include "context.h"

namespace mlxcel {

// The question from -p, a word, -f, or (when there is none of these and stdin is no terminal) standard input.
Result<std::string> read_question(Context& context, const std::optional<std::string>& word);
// Loads the model, answers on stdout (with a newline, or as JSON) and returns the exit code.
Result<int> answer_once(Context& context, const ResolvedModel& model, const std::string& question);

}  // namespace mlxcel
