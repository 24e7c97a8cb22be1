#include "launch/cli/command/dtype.h"

#include <fmt/format.h>

#include <map>
#include <vector>

#include "base/error.h"
#include "base/nearest.h"

namespace lockstep {

at::ScalarType DtypeNamed(const std::string& name) {
  static const std::map<std::string, at::ScalarType> kKnown{{"float32", at::kFloat},
                                                            {"float16", at::kHalf},
                                                            {"bfloat16", at::kBFloat16},
                                                            {"float64", at::kDouble}};
  const auto found = kKnown.find(name);
  if (found != kKnown.end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [known, unused] : kKnown) names.push_back(known);
  throw UsageError("--dtype: no dtype \"{}\"{} (known: {})", name, DidYouMean(name, names),
                   fmt::join(names, ", "));
}

}  // namespace lockstep
