#include "config/schema/field_check.h"

#include <set>

#include "base/error.h"

namespace lockstep {

void FieldCheck::Fail(const std::string& name, const std::string& what) const {
  const auto origin = origins_.find(name);
  throw UsageError("{}: {}: {}", origin == origins_.end() ? path_ : origin->second, name, what);
}

void FieldCheck::RequireDistinct(const std::string& name, const Texts& texts) const {
  std::set<std::string> seen;
  for (const std::string& text : texts) {
    if (!seen.insert(text).second) Fail(name, fmt::format("\"{}\" twice", text));
  }
}

}  // namespace lockstep
