// Writes a config's fields as lines, and finds the fields in which two configs differ.
#pragma once

#include <string>
#include <vector>

#include "config/schema/config.pb.h"

namespace lockstep {

using config::Config;

// Returns a line, such as "optimizer.lr: 0.01", for every field that is set.
std::vector<std::string> FieldLines(Config config);

// A field of which two or more configs have different values.
struct FieldDifference {
  std::string field;                // for example "optimizer.lr"
  std::vector<std::string> values;  // the value in each config, or "not set"
};

// Returns the fields that are not the same in all configs, in the order of their names.
std::vector<FieldDifference> DifferingFields(const std::vector<Config>& configs);

// Returns the differences between two configs that cannot belong to one run, for example "optimizer.lr: 0.1 where it
// was 0.01". Long values, such as the columns of a table, are left out, and only the field is named.
std::vector<std::string> Differences(const Config& before, const Config& now);

}  // namespace lockstep
