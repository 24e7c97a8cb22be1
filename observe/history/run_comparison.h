// Finds the config fields in which several trainings differ, and compares the metrics of the trainings. A training is a
// run, or the folds of a cross-validation, whose values are then means over the folds.
//
// Promise: the values are in the order of the given trainings. A training may be given twice. A value that a training
// does not have is NaN, and the step of that value is 0. (observe/history/run_comparison_test.cc)
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/config_differences.h"
#include "observe/history/run_history.h"

namespace lockstep {

// The runs of a training: one run, or the folds in order. Folds that have not begun may be among them.
using ComparedRuns = std::vector<const RunHistory*>;

struct MetricComparison {
  std::string name;  // "train_loss", "val_loss", ...
  // `steps` has the steps at which the trainings are compared, in ascending order. at_step[i][j] is the value of
  // training j at steps[i].
  std::vector<int64_t> steps;
  std::vector<std::vector<double>> at_step;
  // The last value and the best value of each training, and the steps of these values. For folds they are the mean of
  // the folds' last or best values, and the deviations are the sample standard deviations of these values. The step of
  // a mean of best values is 0, because each fold has its own.
  std::vector<double> last;
  std::vector<int64_t> last_step;
  std::vector<double> best;
  std::vector<int64_t> best_step;
  std::vector<double> last_deviation;  // NaN for a run
  std::vector<double> best_deviation;  // NaN for a run
};

// Returns the config fields in which the trainings differ. Leaves out run_dir, because each run has its own folder;
// data.csv.column, because its means and deviations were computed from the training data; and data.folds.fold if any of
// them has folds. Returns nothing if the config of any training could not be read.
std::vector<FieldDifference> ConfigDifferences(const std::vector<ComparedRuns>& trainings);

// Compares the losses in the step lines. The runs must have been read with RunLog::Keep::kAllSteps. The steps that all
// runs have made are cut into at most `windows` parts whose lengths differ by at most one step. MetricComparison::steps
// has the last step of each part, and at_step has the means of the finite losses of each part. The best values are NaN.
// Returns no steps if a training has no step lines.
MetricComparison CompareLosses(const std::vector<ComparedRuns>& trainings, int64_t windows);

// Compares each metric that at least one of the runs has. MetricComparison::steps has the latest steps for which all
// trainings have a value, at most `most_steps` steps. Folds may evaluate after different steps, because they may have
// different numbers of samples. The values of their first evaluations therefore give the first mean, whose step is the
// mean of their steps, and so on for as long as all folds that have begun have an evaluation.
std::vector<MetricComparison> CompareMetrics(const std::vector<ComparedRuns>& trainings,
                                             size_t most_steps);

}  // namespace lockstep
