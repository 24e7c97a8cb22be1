// Reads a config's text, and applies the changes of --set. An error names the field and the nearest valid name.
#pragma once

#include <string>

#include "trainer/config/schema/config.pb.h"
#include "trainer/config/schema/field_check.h"

namespace lockstep {

// The config in `text`, which the file `path` holds; its relative paths are made absolute from the file's folder. Adds
// to `origins`. Throws Error (kUsage).
config::Config ParseFile(const std::string& path, const std::string& text, Origins& origins);

// Applies "optimizer.lr=0.01" and the like. Throws Error (kUsage).
void Assign(const std::string& assignment, config::Config& config, Origins& origins);

// The config in `text` as it stands. `why`: set where it is none.
config::Config ParseText(const std::string& text, std::string& why);

}  // namespace lockstep
