#include "terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>

namespace mlxcel {

Terminal::Terminal(const Settings& settings) {
  stdin_is_terminal_ = ::isatty(STDIN_FILENO) == 1;
  stdout_is_terminal_ = ::isatty(STDOUT_FILENO) == 1;
  const bool is_dumb = settings.text("terminal").value_or("") == "dumb";
  can_redraw_ = ::isatty(STDERR_FILENO) == 1 && !is_dumb;
  const std::string when = settings.text("color").value_or("auto");
  const bool unwanted = settings.is_given("no-color");
  colours_ = when == "always" || (when == "auto" && can_redraw_ && !unwanted);
}

int Terminal::width() const {
  winsize size{};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0)
    return 80;  // pipes and some consoles say 0
  return size.ws_col;
}

std::string Terminal::styled(std::string_view text, Style style) const {
  if (!colours_ || style == Style::kPlain) return std::string(text);
  const char* code = "";
  switch (style) {
    case Style::kPlain:
      break;
    case Style::kBold:
      code = "1";
      break;
    case Style::kDim:
      code = "2";
      break;
    case Style::kRed:
      code = "31";
      break;
    case Style::kGreen:
      code = "32";
      break;
  }
  std::string out = "\x1b[";
  out += code;
  out += 'm';
  out += text;
  out += "\x1b[0m";
  return out;
}

void Terminal::print(std::string_view text) {
  const size_t written = std::fwrite(text.data(), 1, text.size(), stdout);
  if (written != text.size() || std::fflush(stdout) != 0) output_failed_ = true;
}

void Terminal::note(std::string_view text) {
  std::string line(text);
  line += '\n';
  std::fwrite(line.data(), 1, line.size(), stderr);
}

void Terminal::print_answer(std::string_view text) {
  if (!stdout_is_terminal_) {
    print(text);
    return;
  }
  std::string safe;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7F) {
      safe += "\xEF\xBF\xBD";
    } else {
      safe += c;
    }
  }
  print(safe);
}

void print_error(Terminal& terminal, const Error& error) {
  terminal.note(terminal.styled("mlxcel: ", Style::kRed) + error.to_string());
}

int exit_code_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kInvalidArgument:
      return 2;
    case ErrorKind::kNotFound:
    case ErrorKind::kInvalidData:
    case ErrorKind::kUnsupported:
      return 3;
    case ErrorKind::kOutOfMemory:
      return 4;
    case ErrorKind::kCancelled:
      return 130;
    case ErrorKind::kResourceExhausted:
    case ErrorKind::kIo:
    case ErrorKind::kInternal:
      return 1;
  }
  return 1;
}

}  // namespace mlxcel
