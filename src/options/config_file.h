// The file of --config: TOML whose keys are the long names of flags. Keys at the top hold for every command
// that has them; a table named after a command ([serve], ["bench decode"]) holds for that command and beats
// them.
//
// Every key and value of the file is checked, also those of other commands: an unknown key is an error with
// the nearest known one. Secrets are not taken from here; name a file that holds them (api-key-file).
//
// Pure but for reading the file; any thread.
#pragma once

#include <string>

#include "base/error.h"
#include "options/settings.h"

namespace mlxcel {

// Sets what the file says for `command`, with origin kConfigFile and source "FILE:LINE".
Status read_config_file(const std::string& path, Command command, Settings& settings);

}  // namespace mlxcel
