// Findings: the results of the checks that `lockstep doctor` makes on each rank, and their output for the user.
//
// Promise: if several ranks have the same finding, the report has one line for it. The report also has one line for all
// good measurements of a check, with the lowest value of all ranks. No problem is left out, and the line of a problem
// names the ranks that have the problem.
//
// The tests are in launch/machine/findings_test.cc.
#pragma once

#include <limits>
#include <string>
#include <vector>

namespace lockstep {

enum class State { kOk, kWarn, kFail };

struct Finding {
  std::string check;  // the name of the check, for example "disk"
  State state = State::kOk;
  std::string figure;  // the result in words, for example "wrote 1,210 MB/s"
  std::string advice;  // what the user should do; empty if the user need not do anything
  // The number in `figure`, in `unit`; NaN: `figure` has no number to compare.
  double value = std::numeric_limits<double>::quiet_NaN();
  std::string unit;
};

// Compares the measurement `value` with `most`, the maximum of the hardware. Returns kWarn if `value` is less than
// `least` * `most`, where `least` is a fraction. Otherwise, and if `most` is 0 (unknown), returns kOk.
State StateOf(double value, double most, double least);

// Converts findings to a text that can be sent to another rank.
std::string ToText(const std::vector<Finding>& findings);
// Returns the findings that ToText() has converted to `text`.
std::vector<Finding> FromText(const std::string& text);

// Returns the report for the user about the findings of all ranks. Its last line says how many of the lines above are
// ok, warn and fail.
std::string Report(const std::vector<std::vector<Finding>>& ranks);

// Returns a line of JSON for each finding of each rank.
std::string JsonReport(const std::vector<std::vector<Finding>>& ranks);

State WorstOf(const std::vector<std::vector<Finding>>& ranks);

}  // namespace lockstep
