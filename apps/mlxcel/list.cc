// mlxcel list: the models of this machine.
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>

#include "base/utf8.h"
#include "commands.h"
#include "options/values.h"

namespace mlxcel {

Result<int> list_command(Context& context) {
  const StorePaths paths = store_paths(context.settings);
  const std::vector<StoredModel> models = list_models(paths);
  if (context.settings.flag("json")) {
    JsonArray rows;
    for (const StoredModel& model : models) {
      JsonObject row;
      row.set("name", model.name);
      row.set("path", model.path);
      row.set("source", model_source_name(model.source));
      row.set("bytes", model.bytes);
      row.set("modified", model.modified_unix_seconds);
      row.set("complete", model.is_complete);
      rows.emplace_back(std::move(row));
    }
    context.terminal.print(to_json(JsonValue(std::move(rows))) + "\n");
    return 0;
  }
  if (context.settings.flag("quiet")) {
    std::string names;
    for (const StoredModel& model : models) names += model.name + "\n";
    context.terminal.print(names);
    return 0;
  }
  if (models.empty()) {
    context.terminal.note(fmt::format("no models in {} or {}; get one with: mlxcel pull OWNER/NAME",
                                      paths.home, paths.hugging_face_hub));
    return 0;
  }
  size_t width = 4;
  for (const StoredModel& model : models) width = std::max(width, model.name.size());
  std::string out = fmt::format("{:<{}}  {:>10}  {:<12} {}\n", "NAME", width, "SIZE", "SOURCE", "MODIFIED");
  for (const StoredModel& model : models) {
    const std::string date =
        fmt::format("{:%Y-%m-%d %H:%M}", fmt::localtime(static_cast<time_t>(model.modified_unix_seconds)));
    out += fmt::format("{:<{}}  {:>10}  {:<12} {}{}\n", model.name, width, format_bytes(model.bytes),
                       model_source_name(model.source), date,
                       model.is_complete ? "" : "  (incomplete: pull again)");
  }
  context.terminal.print(out);
  return 0;
}

}  // namespace mlxcel
