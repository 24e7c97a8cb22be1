// Writes a config's fields as lines, and finds the fields in which two configs differ.
#pragma once

#include <string>
#include <vector>

#include "trainer/config/schema/config.pb.h"

namespace lockstep {

using config::Config;

// "optimizer.lr: 0.01" and the like, for every field that is set.
std::vector<std::string> FieldLines(Config config);

struct FieldDifference {
  std::string field;                // "optimizer.lr"
  std::vector<std::string> values;  // of each config; "not set"
};

// The fields that are not the same in all configs, in the order of their names.
std::vector<FieldDifference> DifferingFields(const std::vector<Config>& configs);

// What the two configs of one run differ in, such that it cannot be one run: "optimizer.lr: 0.1 where it was
// 0.01".
std::vector<std::string> Differences(const Config& before, const Config& now);

}  // namespace lockstep
