// The manual pages (roff) and the reference of all flags (Markdown), made from the tables of
// options/option_table.h. Pure functions; any thread.
#pragma once

#include <string>

namespace mlxcel {

// mlxcel(1): every command and every flag, each flag with the commands that take it.
std::string manual_page();
// mlxcel-server(1): the flags of serve.
std::string server_manual_page();
// docs/cli-reference.md.
std::string reference_markdown();

}  // namespace mlxcel
