// Findings: what `lockstep doctor` found on each rank, and how it shows this to the user.
//
// Promise: if all ranks have the same finding, it is one line, with the lowest figure of all ranks. A problem is never
// left out, and its line names the ranks that have it.
//
// (launch/machine/findings_test.cc)
#pragma once

#include <limits>
#include <string>
#include <vector>

namespace lockstep {

enum class State { kOk, kWarn, kFail };

struct Finding {
  std::string check;  // "disk"
  State state = State::kOk;
  std::string figure;  // "wrote 1,210 MB/s"; what was found out
  std::string advice;  // what to do; empty where nothing is to be done
  double value =
      std::numeric_limits<double>::quiet_NaN();  // of the figure, in `unit`; NaN: it has none
  std::string unit;
};

// A measured value against what the hardware can do at most: kWarn below `least` of that. 0 of `most`: not known.
State StateOf(double value, double most, double least);

// For another rank.
std::string ToText(const std::vector<Finding>& findings);
std::vector<Finding> FromText(const std::string& text);

// Lines for a person, of all ranks' findings; the last one counts them.
std::string Report(const std::vector<std::vector<Finding>>& ranks);

// A line of JSON for each finding of each rank.
std::string JsonReport(const std::vector<std::vector<Finding>>& ranks);

State WorstOf(const std::vector<std::vector<Finding>>& ranks);

}  // namespace lockstep
