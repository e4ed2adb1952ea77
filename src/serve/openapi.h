// /openapi.json, made from the route table and the field table.
// Pure function; any thread.
#pragma once

#include <string_view>

#include "base/json.h"

namespace mlxcel {

JsonValue openapi_document(std::string_view version);

}  // namespace mlxcel
