// Other programs (shells, groff, systemd-analyze) as the tests use them.
//
// Owner: a test. Threads: one.
#pragma once

#include <array>
#include <cstdio>
#include <memory>

#include "program.h"

namespace mlxcel {

struct ShellResult {
  int code = -1;
  std::string output;
};
inline ShellResult shell(const std::string& command) {
  ShellResult result;
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen((command + " 2>&1").c_str(), "r"),
                                                   [](FILE*) { return 0; });
  std::array<char, 4096> buffer{};
  for (size_t got = 0; (got = std::fread(buffer.data(), 1, buffer.size(), pipe.get())) > 0;)
    result.output.append(buffer.data(), got);
  result.code = exit_code_of_status(::pclose(pipe.get()));
  return result;
}
inline bool is_installed(const std::string& program) { return shell("command -v " + program).code == 0; }

}  // namespace mlxcel
