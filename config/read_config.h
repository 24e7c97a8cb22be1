// Reads a config's text, and applies the assignments of --set. An error names the field and the most similar valid
// name.
//
// Promise: configs that runs of earlier versions saved can be read. If they have a field that the schema has removed
// (option `former` in config/schema/options.proto), the returned config has the same meaning, expressed in current
// fields. A user's config with such a field is refused, with an error that says what to write instead.
#pragma once

#include <string>

#include "config/schema/config.pb.h"
#include "config/schema/field_check.h"

namespace lockstep {

enum class FormerFields { kRefuse, kBringUpToDate };

// Parses `text`, the content of the config file `path`. Relative paths in the config are resolved against the file's
// folder. Adds the position of each field to `origins`. Throws Error (kUsage).
config::Config ParseFile(const std::string& path, const std::string& text, FormerFields former,
                         Origins& origins);

// Applies one assignment of --set, such as "optimizer.lr=0.01". Throws Error (kUsage).
void Assign(const std::string& assignment, config::Config& config, Origins& origins);

// Parses `text`, which a run saved. Relative paths stay as they are. If `text` is not a config, sets `why` to the
// reason.
config::Config ParseText(const std::string& text, std::string& why);

}  // namespace lockstep
