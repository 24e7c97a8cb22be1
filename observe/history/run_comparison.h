// RunComparison: finds the config fields in which several runs differ, and sets their metrics side by side.
//
// Promise: the values are in the order of the given runs. A run may be given twice. A value that a run does not have is
// NaN, and a last value that it does not have is of step 0. (observe/history/run_comparison_test.cc)
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/config_differences.h"
#include "observe/history/run_history.h"

namespace lockstep {

struct MetricComparison {
  std::string name;  // "train_loss", "val_loss", ...
  // `steps` has the last steps for which all runs have a value. at_step[i][j] is the value of run j at steps[i].
  std::vector<int64_t> steps;
  std::vector<std::vector<double>> at_step;
  // These have the last and the best value of each run, and the steps of those values.
  std::vector<double> last;
  std::vector<int64_t> last_step;
  std::vector<double> best;
  std::vector<int64_t> best_step;
};

// Returns the config fields in which the runs differ. It leaves out the run folder and the means and deviations that
// were computed from the training data. Returns nothing if the config of any run could not be read.
std::vector<FieldDifference> ConfigDifferences(const std::vector<const RunHistory*>& runs);

// Compares the losses in the step lines, of runs that were read with RunLog::Keep::kAllSteps. The steps that all runs
// have made are cut into `windows` parts of equal length. MetricComparison::steps has the last step of each part, and
// at_step the mean of the part's losses. There is no best value. Returns no steps if a run has no step lines.
MetricComparison CompareLosses(const std::vector<const RunHistory*>& runs, int64_t windows);

// Compares each metric that at least one of the runs has, at no more than `most_steps` steps.
std::vector<MetricComparison> CompareMetrics(const std::vector<const RunHistory*>& runs,
                                             size_t most_steps);

}  // namespace lockstep
