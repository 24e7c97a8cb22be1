// Writes a config's fields as lines, and finds the fields in which two configs differ.
#pragma once

#include <string>
#include <vector>

#include "config/schema/config.pb.h"

namespace lockstep {

using config::Config;

// Returns a line, such as "optimizer.lr: 0.01", for every field that is set.
std::vector<std::string> FieldLines(Config config);

// A field that has different values in two or more configs.
struct FieldDifference {
  std::string field;                // for example "optimizer.lr"
  std::vector<std::string> values;  // the value in each config, or "not set"
};

// Returns the fields that are not the same in all configs, sorted by name.
std::vector<FieldDifference> DifferingFields(const std::vector<Config>& configs);

// The end of a line of Differences() about the categories or classes of a table.
inline constexpr char kOtherOrder[] =
    "the same values are spelled otherwise and so are in another order (02 is before 10, and 2 is "
    "behind it)";

// Returns a line for each difference that prevents a run that was started with the config `before` from being continued
// with the config `now`, for example "optimizer.lr: 0.1 where it was 0.01". If one of the two values has more than 100
// characters, the line names only the field. Tables are compared by their values: other spellings of them, such as 1.0
// in the place of 1, or another delimiter, are no difference, unless they change the order of categories or classes.
std::vector<std::string> Differences(const Config& before, const Config& now);

}  // namespace lockstep
