#include "serve/openapi.h"

#include <string>

#include "serve/api/field_table.h"
#include "serve/api_server.h"

namespace mlxcel {

namespace {

JsonValue body_schema(Route route) {
  JsonObject properties;
  for (const FieldRow& row : field_table()) {
    if (!(route == Route::kChat ? row.chat : row.completion) || row.treatment == FieldTreatment::kNeutralOnly)
      continue;
    JsonObject property;
    property.set("description", row.help);
    properties.set(std::string(row.name), std::move(property));
  }
  JsonObject schema;
  schema.set("type", "object");
  schema.set("properties", std::move(properties));
  schema.set("required", JsonArray{JsonValue(route == Route::kChat ? "messages" : "prompt")});
  return JsonValue(std::move(schema));
}

JsonValue operation(const RouteRow& row) {
  JsonObject ok;
  ok.set("description", "OK");
  JsonObject responses;
  responses.set("200", std::move(ok));
  JsonObject out;
  out.set("summary", row.help);
  out.set("responses", std::move(responses));
  const bool chat = row.path == "/v1/chat/completions";
  if (chat || row.path == "/v1/completions") {
    JsonObject media, content, body;
    media.set("schema", body_schema(chat ? Route::kChat : Route::kCompletion));
    content.set("application/json", std::move(media));
    body.set("required", true);
    body.set("content", std::move(content));
    out.set("requestBody", std::move(body));
  }
  if (!row.is_public) {
    JsonObject bearer;
    bearer.set("bearer", JsonArray());
    out.set("security", JsonArray{JsonValue(std::move(bearer)), JsonValue(JsonObject())});
  }
  return JsonValue(std::move(out));
}

}  // namespace

JsonValue openapi_document(std::string_view version) {
  JsonObject paths;
  for (const RouteRow& row : route_table()) {
    std::string path(row.path);
    if (path.ends_with("/*")) path.replace(path.size() - 1, 1, "{id}");
    std::string method(row.method);
    for (char& c : method) c = static_cast<char>(c - 'A' + 'a');
    JsonObject item;
    if (const JsonValue* existing = paths.find(path)) item = existing->as_object();
    item.set(method, operation(row));
    paths.set(path, JsonValue(std::move(item)));
  }
  JsonObject info, scheme, schemes, components, out;
  info.set("title", "mlxcel");
  info.set("version", version);
  scheme.set("type", "http");
  scheme.set("scheme", "bearer");
  schemes.set("bearer", std::move(scheme));
  components.set("securitySchemes", std::move(schemes));
  out.set("openapi", "3.1.0");
  out.set("info", std::move(info));
  out.set("paths", std::move(paths));
  out.set("components", std::move(components));
  return JsonValue(std::move(out));
}

}  // namespace mlxcel
