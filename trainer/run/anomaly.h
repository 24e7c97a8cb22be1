// Ends a run if its loss or gradient is not finite.
//
// Every rank throws the same Error, which says what to do. If an input of the step contains a number that is not
// finite, the Error names the sample and the file. Otherwise the Error advises the user to lower the learning rate, or
// to change clipping or precision.
//
// what can fail -> what the caller sees -> the test that shows it (tests/precision_test.py, tests/planted_test.py)
//   the loss or the gradient's norm is not finite -> Error (kUsage) with the step
//   the loss scale of FP16 has fallen too far -> Error (kUsage) with the step
#pragma once

#include <cstdint>

#include "config/schema/config.pb.h"
#include "trainer/run/open_data.h"

namespace lockstep {

struct Anomaly {
  int64_t step = 0;  // the step with the anomaly, counted from 1
  double loss = 0;
  double grad_norm = 0;
};

// Ends the run because of an anomaly: throws Error on every rank. `saves` says whether this rank writes the file
// AnomalyPath() (trainer/run/run_folder.h) if the config asks for it.
[[noreturn]] void EndForAnomaly(const Anomaly& anomaly, const config::Config& config,
                                const TrainingData& data, bool saves);

// Ends the run in `step`, counted from 1, because the loss scale `scale` has become too small: throws Error on every
// rank. `skipped` is the number of steps so far whose gradients were not finite.
[[noreturn]] void EndForLossScale(int64_t step, double scale, int64_t skipped,
                                  const config::Config& config, const TrainingData& data);

}  // namespace lockstep
