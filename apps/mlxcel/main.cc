// mlxcel: the program. Reads the command line, runs one command, turns errors into exit codes.
#include <clocale>
#include <exception>
#include <new>
#include <span>

#include "base/file.h"
#include "base/log.h"
#include "commands.h"
#include "interrupt.h"
#include "options/command_line.h"
#include "options/help.h"

namespace mlxcel {
namespace {

Result<int> dispatch(Command command, Context& context) {
  switch (command) {
    case Command::kRun:
      return run_command(context);
    case Command::kGenerate:
      return generate_command(context);
    case Command::kServe:
      return serve_command(context);
    case Command::kInspect:
      return inspect_command(context);
    case Command::kTokenize:
      return tokenize_command(context);
    case Command::kTemplate:
      return template_command(context);
    case Command::kScore:
      return score_command(context);
    case Command::kBenchDecode:
      return bench_decode_command(context);
    case Command::kBenchServe:
      return bench_serve_command(context);
    case Command::kList:
      return list_command(context);
    case Command::kPull:
      return pull_command(context);
    case Command::kVersion:
      return version_command(context);
    case Command::kCompletion:
      return completion_command(context);
    case Command::kMan:
      return man_command(context);
  }
  return make_error(ErrorKind::kInternal, "a command without code");
}

Result<std::string> help_text(const CommandLine& line) {
  if (line.command) return command_help_text(*line.command, line.help_topic);
  if (!line.help_topic.empty()) return program_topic_text(line.help_topic);
  return program_help_text();
}

LogLevel log_level_of(const Settings& settings) {
  const std::string name = *settings.text("log-level");
  if (settings.flag("verbose") && !settings.is_given("log-level")) return LogLevel::kInfo;
  if (name == "error") return LogLevel::kError;
  if (name == "info") return LogLevel::kInfo;
  if (name == "debug") return LogLevel::kDebug;
  if (name == "trace") return LogLevel::kTrace;
  return LogLevel::kWarning;
}

Result<int> run_program(std::vector<std::string> arguments, std::span<const std::string> variables,
                        Terminal& terminal) {
  MLXCEL_ASSIGN_OR_RETURN(CommandLine line, parse_command_line(arguments, process_environment()));
  if (line.wants_help) {
    MLXCEL_ASSIGN_OR_RETURN(const std::string text, help_text(line));
    terminal.print(text);
    if (terminal.output_failed()) return make_error(ErrorKind::kIo, "cannot write to standard output");
    // Without a single word on the command line the help is an answer to a usage error.
    return arguments.empty() ? 2 : 0;
  }
  terminal = Terminal(line.settings);
  for (const std::string& warning : unknown_variables(variables)) terminal.note(warning);
  set_log_level(log_level_of(line.settings));
  install_interrupt_handler();
  Context context{std::move(line.settings), std::move(line.arguments), terminal};
  if (context.settings.flag("print-config")) return print_configuration(context, *line.command);
  auto code = dispatch(*line.command, context);
  if (code.ok() && context.terminal.output_failed()) {
    return make_error(ErrorKind::kIo, "cannot write to standard output");
  }
  return code;
}

int guarded_main(int argc, char** argv, char** environment) {
  Terminal terminal;
  try {
    std::vector<std::string> arguments(argv + std::min(argc, 1), argv + argc);
    // mlxcel-server is a link to this program with llama-server's manners.
    if (argc > 0 && path_basename(argv[0]) == "mlxcel-server") arguments.insert(arguments.begin(), "serve");
    std::vector<std::string> variables;
    for (char** entry = environment; *entry != nullptr; ++entry) {
      const std::string_view text(*entry);
      variables.emplace_back(text.substr(0, text.find('=')));
    }
    const auto code = run_program(std::move(arguments), variables, terminal);
    if (code.ok()) return *code;
    print_error(terminal, code.error());
    return exit_code_of(code.error().kind);
  } catch (const std::bad_alloc&) {
    print_error(terminal, make_error(ErrorKind::kOutOfMemory, "not enough memory", "", "", "",
                                     "use a smaller model or context (-c)"));
    return exit_code_of(ErrorKind::kOutOfMemory);
  } catch (const std::exception& error) {
    print_error(terminal, make_error(ErrorKind::kInternal, "unexpected failure", "", "", error.what()));
    return exit_code_of(ErrorKind::kInternal);
  }
}

}  // namespace
}  // namespace mlxcel

int main(int argc, char** argv, char** environment) {
  std::setlocale(LC_CTYPE, "");  // wide characters in the line editor; numbers stay as they are
  return mlxcel::guarded_main(argc, argv, environment);
}
