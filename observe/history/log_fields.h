// Reads fields of a line of log.jsonl. A field may be missing or have a wrong type.
#pragma once

#include <limits>
#include <nlohmann/json.hpp>
#include <string>

namespace lockstep {

// Returns the number in the field `name`, or `otherwise` if the field is missing or is not a number.
inline double NumberIn(const nlohmann::ordered_json& line, const char* name,
                       double otherwise = std::numeric_limits<double>::quiet_NaN()) {
  const auto found = line.find(name);
  return found != line.end() && found->is_number() ? found->get<double>() : otherwise;
}

// Returns the text in the field `name`, or an empty text if the field is missing or is not a text.
inline std::string TextIn(const nlohmann::ordered_json& line, const char* name) {
  const auto found = line.find(name);
  return found != line.end() && found->is_string() ? found->get<std::string>() : "";
}

}  // namespace lockstep
