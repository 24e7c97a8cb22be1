// Reads a config's text, and applies the changes of --set. An error names the field and the nearest valid name.
//
// Promise: the configs that runs of earlier versions left behind are read. Where they have a field that is gone
// (`former` in config/schema/options.proto), the config that is returned says the same with today's fields. A user's
// config with such a field is refused, with what to write instead.
#pragma once

#include <string>

#include "config/schema/config.pb.h"
#include "config/schema/field_check.h"

namespace lockstep {

enum class FormerFields { kRefuse, kBringUpToDate };

// Parses `text`, the content of the config file `path`. Relative paths in the config count from the file's folder and
// are made absolute. Adds the place of each field to `origins`. Throws Error (kUsage).
config::Config ParseFile(const std::string& path, const std::string& text, FormerFields former,
                         Origins& origins);

// Applies one change of --set, such as "optimizer.lr=0.01". Throws Error (kUsage).
void Assign(const std::string& assignment, config::Config& config, Origins& origins);

// Parses `text`, which a run left behind, and changes no paths. If `text` is not a config, sets `why` to the reason.
config::Config ParseText(const std::string& text, std::string& why);

}  // namespace lockstep
