// Finds the config fields in which several runs differ, and compares the runs' metrics.
//
// Promise: the values are in the order of the given runs. A run may be given twice. A value that a run does not have is
// NaN, and the step of that value is 0. (observe/history/run_comparison_test.cc)
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/config_differences.h"
#include "observe/history/run_history.h"

namespace lockstep {

struct MetricComparison {
  std::string name;  // "train_loss", "val_loss", ...
  // `steps` has the steps at which the runs are compared, in ascending order. at_step[i][j] is the value of run j at
  // steps[i].
  std::vector<int64_t> steps;
  std::vector<std::vector<double>> at_step;
  // The last value and the best value of each run, and the steps of these values.
  std::vector<double> last;
  std::vector<int64_t> last_step;
  std::vector<double> best;
  std::vector<int64_t> best_step;
};

// Returns the config fields in which the runs differ. Leaves out two fields: run_dir, because each run has its own
// folder, and data.csv.column, because its means and deviations were computed from the training data. Returns
// nothing if the config of any run could not be read.
std::vector<FieldDifference> ConfigDifferences(const std::vector<const RunHistory*>& runs);

// Compares the losses in the step lines. The runs must have been read with RunLog::Keep::kAllSteps. The steps that all
// runs have made are cut into at most `windows` parts whose lengths differ by at most one step. MetricComparison::steps
// has the last step of each part, and at_step has the means of the finite losses of each part. The best values are NaN.
// Returns no steps if a run has no step lines.
MetricComparison CompareLosses(const std::vector<const RunHistory*>& runs, int64_t windows);

// Compares each metric that at least one of the runs has. MetricComparison::steps has the latest steps for which all
// runs have a value, at most `most_steps` steps.
std::vector<MetricComparison> CompareMetrics(const std::vector<const RunHistory*>& runs,
                                             size_t most_steps);

}  // namespace lockstep
