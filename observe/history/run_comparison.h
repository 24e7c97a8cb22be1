// RunComparison: what several runs differ in, and how they did side by side.
//
// Promise: each value is in the order of the runs that were given, also where one of them stands there twice. What a
// run does not have is NaN.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "observe/history/run_history.h"
#include "trainer/config/config_differences.h"

namespace lockstep {

struct MetricComparison {
  std::string name;  // "train_loss", "val_loss", ...
  // The last steps for which all runs have a value, and the values of each, by run.
  std::vector<int64_t> steps;
  std::vector<std::vector<double>> at_step;
  // The last and the best value of each run, and their steps.
  std::vector<double> last;
  std::vector<int64_t> last_step;
  std::vector<double> best;
  std::vector<int64_t> best_step;
};

// The fields of the configs that differ, of runs whose config could be read, but for the run folder and what the
// training data held.
std::vector<FieldDifference> ConfigDifferences(const std::vector<const RunHistory*>& runs);

// Those that at least one of the runs has. `most_steps`: of each comparison.
std::vector<MetricComparison> CompareMetrics(const std::vector<const RunHistory*>& runs,
                                             size_t most_steps);

}  // namespace lockstep
