// MeasureSteps(): measures the time that a config's training steps take on samples that already lie in the device's
// memory.
//
// what can fail -> what the caller sees -> the test that shows it
//   data, model or config that do not fit together -> the same errors as in trainer/run/trainer.h
//   a step does not fit in memory -> its micro-batches are halved, as in training; if one sample does not fit, Error
//     on every rank -> tests/tune_test.py, test_steps_that_do_not_fit
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/files/kept_files.h"
#include "config/schema/config.pb.h"
#include "observe/device_memory.h"
#include "observe/step_clock.h"
#include "trainer/run/train_options.h"
#include "trainer/step/world.h"

namespace lockstep {

struct StepMeasurement {
  std::vector<double> step_ms;  // the time of each timed step, in milliseconds
  std::array<double, kPhases.size()> phase_ms{};
  double first_step_s = 0;  // from the start of the user's command to the end of the first step
  DevicePeak memory;        // the peak of the device's memory; all 0 on the CPU
  // The floating-point operations of this rank's forward passes in one step, as CountFlops() counts them
  // (observe/flops.h).
  int64_t forward_flops = 0;
  double peak_flops = 0;  // the peak of the device's arithmetic, in FLOP/s; 0: unknown
  int64_t parameters = 0;
  int64_t samples = 0;  // the number of samples of the training set
  double loss = 0;      // the loss of the last step
  config::Precision precision = config::FP32;
  int64_t accumulation = 1;  // micro-batches of a step: as in the config, or more if memory ran out
  std::string
      why_no_graph;  // why steps ran without the CUDA graph that the config asks for; empty: none
};

// Makes `warmup` untimed steps of `config`, but at least one, and then `steps` timed steps, and returns the
// measurements. Saves neither weights nor checkpoints. If `trace` is not empty, makes ten more steps after that, and
// rank 0 writes a Chrome trace of these steps to the file `trace`, which must not be one of `kept` or of the config's
// files. Every rank must call MeasureSteps(). Throws Error.
StepMeasurement MeasureSteps(config::Config config, const Extensions& extensions,
                             const World& world, int warmup, int steps, const std::string& trace,
                             KeptFiles kept, const TrainOptions& options);

}  // namespace lockstep
