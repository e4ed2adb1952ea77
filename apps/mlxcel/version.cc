// mlxcel version: what this program is and what this machine offers it.
#include <fmt/format.h>

#include "backend/cpu/isa.h"
#include "base/threads.h"
#include "commands.h"

namespace mlxcel {

Result<int> version_command(Context& context) {
  const std::string compiler = fmt::format("{} {}.{}", MLXCEL_COMPILER, __GNUC__, __GNUC_MINOR__);
  std::vector<std::string_view> isas;
  for (const Isa isa : available_isas()) isas.push_back(isa_name(isa));
  if (context.settings.flag("json")) {
    JsonArray names;
    for (const std::string_view name : isas) names.emplace_back(name);
    JsonObject out;
    out.set("version", MLXCEL_VERSION);
    out.set("compiler", compiler);
    out.set("build_type", MLXCEL_BUILD_TYPE);
    out.set("isas", std::move(names));
    out.set("cores", usable_cores());
    context.terminal.print(to_json(JsonValue(std::move(out))) + "\n");
  } else {
    context.terminal.print(fmt::format("mlxcel {}\n{}, {}; instruction sets {}; {} cores\n", MLXCEL_VERSION,
                                       compiler, MLXCEL_BUILD_TYPE, fmt::join(isas, ", "), usable_cores()));
  }
  return 0;
}

}  // namespace mlxcel
