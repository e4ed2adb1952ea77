// One function per command; each lives in the file of its name. An Error becomes the exit code and three
// lines on stderr; a value is the exit code.
#pragma once

#include "base/error.h"
#include "context.h"

namespace mlxcel {

Result<int> run_command(Context& context);
Result<int> generate_command(Context& context);
Result<int> serve_command(Context& context);
Result<int> inspect_command(Context& context);
Result<int> tokenize_command(Context& context);
Result<int> template_command(Context& context);
Result<int> score_command(Context& context);
Result<int> bench_decode_command(Context& context);
Result<int> bench_serve_command(Context& context);
Result<int> list_command(Context& context);
Result<int> pull_command(Context& context);
Result<int> version_command(Context& context);
Result<int> completion_command(Context& context);
Result<int> man_command(Context& context);

// What --print-config asks of any command: every setting with its value and origin, those of the named
// model's generation_config.json included; no weights are read.
Result<int> print_configuration(Context& context, Command command);

}  // namespace mlxcel
