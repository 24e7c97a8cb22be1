// Writes a config's fields as lines, and finds the fields in which two configs differ.
#pragma once

#include <string>
#include <vector>

#include "trainer/config/schema/config.pb.h"

namespace lockstep {

using config::Config;

// Returns a line, such as "optimizer.lr: 0.01", for every field that is set.
std::vector<std::string> FieldLines(Config config);

// Returns the differences between two configs that cannot belong to one run, for example "optimizer.lr: 0.1 where it
// was 0.01".
std::vector<std::string> Differences(const Config& before, const Config& now);

}  // namespace lockstep
