// EvaluateRun() computes metrics with the weights of a trained run, and PredictRuns() writes predictions of a run or of
// the folds of a cross-validation.
//
// Promise: files are predicted by all of the runs: a prediction is the mean of their probabilities, or of their
// numbers. If the runs read files alike, each sample is read once for all of them. Samples that training held back are
// predicted by the run that held them back, so no run predicts a sample that it has seen.
//
// what can fail -> what the caller sees -> the test that shows it (tests/tasks_test.py, tests/folds_test.py)
//   the run has no weights, or they are another model's -> Error (kCheckpoint, kUsage) on every rank
//   files of another kind than the run's -> Error (kData) on every rank
//   the file cannot be written -> Error before anything is computed
//   runs whose classes differ, masks of several runs -> Error (kUsage) on every rank
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

// Evaluates the weights of `run` (ckpt/weights.h) on `files`, or on the run's validation samples if there are no files.
// Every rank must call it. Throws Error.
struct RunEvaluation {
  // On rank 0: what the weights are, if they are not the run's final ones.
  std::string weights;
  std::vector<Metric> metrics;
  int64_t samples = 0;
  // One line for each sample of this rank that was replaced, with the reason.
  std::vector<std::string> bad_samples;
};
RunEvaluation EvaluateRun(const NamedRun& run, const std::vector<std::string>& files,
                          const Extensions& extensions, const World& world);

// Predicts the request's samples, whose labels may be missing, and writes the predictions. Every rank must call it.
// Throws Error.
struct RunPredictions {
  std::string weights;  // as RunEvaluation's, or how many folds there are
  int64_t samples = 0;
  std::string contents;  // on rank 0: PredictionFile::Contents()
};
RunPredictions PredictRuns(const std::vector<NamedRun>& runs, PredictionRequest request,
                           const Extensions& extensions, const World& world);

}  // namespace lockstep
