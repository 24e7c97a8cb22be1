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
  std::string figure;  // the result in words: "wrote 1,210 MB/s"
  std::string advice;  // what the user should do; empty if nothing is wrong
  // The value of the figure, in `unit`; NaN: the figure has no value.
  double value = std::numeric_limits<double>::quiet_NaN();
  std::string unit;
};

// Compares a measured value with the maximum of the hardware, `most`. Returns kWarn if the value is less than the
// fraction `least` of it. If `most` is 0, the maximum is unknown.
State StateOf(double value, double most, double least);

// Convert findings to a text that is sent to another rank, and back.
std::string ToText(const std::vector<Finding>& findings);
std::vector<Finding> FromText(const std::string& text);

// Returns lines for the user about the findings of all ranks. The last line counts the findings.
std::string Report(const std::vector<std::vector<Finding>>& ranks);

// Returns a line of JSON for each finding of each rank.
std::string JsonReport(const std::vector<std::vector<Finding>>& ranks);

State WorstOf(const std::vector<std::vector<Finding>>& ranks);

}  // namespace lockstep
