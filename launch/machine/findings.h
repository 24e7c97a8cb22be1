// Findings: the results of the checks that `lockstep doctor` makes on each rank, and their output for the user.
//
// Promise: the same finding of several ranks is one line of the report. Good measurements of one check are one line,
// too, with the lowest value of all ranks. A problem is never left out, and its line names the ranks that have it.
//
// The tests are in launch/machine/findings_test.cc.
#pragma once

#include <limits>
#include <string>
#include <vector>

namespace lockstep {

enum class State { kOk, kWarn, kFail };

struct Finding {
  std::string check;  // the name of the check: "disk"
  State state = State::kOk;
  std::string figure;  // the result in words: "wrote 1,210 MB/s"
  std::string advice;  // what the user should do; empty if nothing is wrong
  // The number in `figure`, in `unit`; NaN: `figure` has no number to compare.
  double value = std::numeric_limits<double>::quiet_NaN();
  std::string unit;
};

// Compares a measured value with `most`, the maximum of the hardware. Returns kWarn if `value` is less than `least` (a
// fraction) of `most`; otherwise, and if `most` is 0 (unknown), returns kOk.
State StateOf(double value, double most, double least);

// ToText() converts findings to a text that can be sent to another rank, and FromText() converts such a text back.
std::string ToText(const std::vector<Finding>& findings);
std::vector<Finding> FromText(const std::string& text);

// Returns lines for the user about the findings of all ranks. The last line says how many of the lines are ok, warn and
// fail.
std::string Report(const std::vector<std::vector<Finding>>& ranks);

// Returns a line of JSON for each finding of each rank.
std::string JsonReport(const std::vector<std::vector<Finding>>& ranks);

State WorstOf(const std::vector<std::vector<Finding>>& ranks);

}  // namespace lockstep
