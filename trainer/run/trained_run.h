// EvaluateRun() computes metrics with the weights of a trained run, and PredictRun() writes predictions.
//
// what can fail -> what the caller sees -> the test that shows it (tests/tasks_test.py)
//   the run has no weights, or they are another model's -> Error (kCheckpoint, kUsage) on every rank
//   files of another kind than the run's -> Error (kData) on every rank
//   the file cannot be written -> Error before anything is computed
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "observe/metrics.h"
#include "trainer/config/schema/config.pb.h"
#include "trainer/predictions/prediction_file.h"
#include "trainer/step/world.h"

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
RunEvaluation EvaluateRun(const std::string& run, const config::Config& config,
                          const std::vector<std::string>& files, const Extensions& extensions,
                          const World& world);

// Predicts the request's samples, whose labels may be missing, with the weights of `run`, and writes the predictions. Every
// rank must call it. Throws Error.
struct RunPredictions {
  std::string weights;  // as RunEvaluation's
  int64_t samples = 0;
  std::string contents;  // on rank 0: PredictionFile::Contents()
};
RunPredictions PredictRun(const std::string& run, const config::Config& config,
                          const PredictionRequest& request, const Extensions& extensions,
                          const World& world);

}  // namespace lockstep
