// EvaluateRun() computes metrics with the weights of a trained run, and PredictRuns() writes predictions of one run or
// of the folds of a cross-validation.
//
// Promise: all runs predict the given files, and a prediction is the mean of the runs' probabilities or regression
// outputs. If the runs read files in the same way, each sample is read once for all of them. If the request asks for
// the samples that training held back, each of them is predicted only by the run that held it back, so that no run
// predicts a sample that it was trained on.
//
// what can fail -> what the caller sees -> the test that shows it (tests/tasks_test.py, tests/folds_test.py)
//   the run has no weights, or weights of another model -> Error (kCheckpoint, kUsage) on every rank
//   files that do not match the run's data -> Error (kData) on every rank
//   the samples that the run held back have changed -> a remark
//     -> tests/made_of_test.py, test_changes_of_what_was_held_back_are_told_when_it_is_used
//   the file cannot be written -> Error before anything is computed
//   runs whose classes differ; masks, which have no mean, of several runs -> Error (kUsage) on every rank
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "observe/metrics.h"
#include "trainer/step/world.h"
#include "use/named_runs.h"
#include "use/prediction_file.h"

namespace lockstep {

struct Extensions;  // trainer/run/extensions.h

// The result of EvaluateRun().
struct RunEvaluation {
  // On rank 0: the checkpoint that the weights are from; empty: they are the run's final weights.
  std::string weights;
  std::vector<Metric> metrics;
  int64_t samples = 0;
  // One line for each unreadable sample of this rank that was replaced by another one, with the reason.
  std::vector<std::string> bad_samples;
  // On rank 0: lines that tell how the files were read, and what has changed of the samples that the run held back.
  std::vector<std::string> remarks;
};
// Evaluates the weights of `run` (ckpt/weights.h) on `files`, or on the run's validation samples if there are no files.
// Every rank must call EvaluateRun(). Throws Error.
RunEvaluation EvaluateRun(const NamedRun& run, const std::vector<std::string>& files,
                          const Extensions& extensions, const World& world);

// The result of PredictRuns().
struct RunPredictions {
  std::string weights;  // RunEvaluation::weights of the only run, or the number of folds
  int64_t samples = 0;
  std::string contents;  // on rank 0: PredictionFile::Contents()
  // RunEvaluation::remarks of each run. There is one element if all runs read the files in the same way.
  std::vector<std::vector<std::string>> remarks;
};
// Predicts the samples of the request, whose labels may be missing, and writes the predictions. Every rank must call
// PredictRuns(). Throws Error.
RunPredictions PredictRuns(const std::vector<NamedRun>& runs, PredictionRequest request,
                           const Extensions& extensions, const World& world);

// Returns each different line of `remarks`, which has the lines of each fold, once. A line that only some of the folds
// have begins with the numbers of these folds.
std::vector<std::string> RemarksOfFolds(const std::vector<std::vector<std::string>>& remarks);

}  // namespace lockstep
