// The conversation in the terminal. See /help in it.
//
// Owner: the run command. Threads: the main thread.
#pragma once

#include "context.h"

namespace mlxcel {

Result<int> run_repl(Context& context, const ResolvedModel& model);

}  // namespace mlxcel
