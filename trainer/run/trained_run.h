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
#include "trainer/step/world.h"

namespace lockstep {

struct Extensions;  // trainer/run/extensions.h

// Evaluates the weights of `run` (ckpt/weights.h) on `files`, or without any on the run's validation samples.
// `samples` is their number. Every rank must call it. Throws Error.
struct RunEvaluation {
  std::string weights;  // on rank 0: where they were
  std::vector<Metric> metrics;
  int64_t samples = 0;
  std::vector<std::string> bad_samples;  // why others stood for some of this rank's, a line each
};
RunEvaluation EvaluateRun(const std::string& run, const config::Config& config,
                          const std::vector<std::string>& files, const Extensions& extensions,
                          const World& world);

// Predicts the samples of `files`, whose labels may be left out, with the weights of `run`, and writes them
// to `output` as CSV: the index and the columns of Predictions, labels as their names where they have some.
// Returns their number. Every rank must call it. Throws Error.
int64_t PredictRun(const std::string& run, const config::Config& config,
                   const std::vector<std::string>& files, const std::string& output,
                   const Extensions& extensions, const World& world);

}  // namespace lockstep
