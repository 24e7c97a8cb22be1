// MicroBatchChoice: chooses how many micro-batches a step has, for micro_batch: AUTO.
//
// Promise: every rank gets the same number. It is the smallest power of two with which the foretold memory
// (trainer/run/foretell.h) fits into each rank's GPU. If possible, 5 % of the GPU's memory is left free. No step is run
// for the choice, and no choice is stored. A step computes the same with any number of micro-batches.
//
// what can fail -> what the caller sees -> the test that shows it
//   not even one sample fits -> as many micro-batches as there are samples, so that the step runs out of memory and
//     says so -> tests/memory_test.py
//   the model's memory cannot be foretold, or the device is a CPU -> one micro-batch -> tests/estimate_test.py,
//     test_auto_on_a_cpu
#pragma once

#include <cstdint>
#include <optional>

#include "config/schema/config.pb.h"
#include "observe/run_event.h"
#include "trainer/run/foretell.h"
#include "trainer/step/world.h"

namespace lockstep {

class MicroBatchChoice {
 public:
  // Keeps references to all arguments. `foreteller` is this rank's; null: memory cannot be foretold. Every rank must
  // call it.
  MicroBatchChoice(const config::Config& config, Foreteller* foreteller, const World& world);

  // Returns nothing if the config itself gives the number of micro-batches.
  const std::optional<MicroBatchChosen>& chosen() const { return chosen_; }

  // Call it before step `step`, counted from 0, which would be made in `accumulation` micro-batches. Returns a new
  // choice if the GPUs have since got enough free memory for fewer micro-batches. Free memory is checked only at some
  // steps, which are the same on every rank. Every rank must call it.
  std::optional<MicroBatchChosen> Fewer(int64_t step, int64_t accumulation);

 private:
  // Returns the bytes of the GPU's memory that this run may use if the share `left` of the GPU is left free.
  int64_t Room(double left) const;
  // Throws Error.
  int64_t FewestThatFit();
  MicroBatchChosen Choose(int64_t step);

  const config::Config& config_;
  const World& world_;
  Foreteller* foreteller_;  // null: memory cannot be foretold
  std::optional<MicroBatchChosen> chosen_;
  int64_t room_ = 0;          // the result of Room() at the last choice
  int64_t look_every_ = 256;  // steps between two checks of free memory
};

}  // namespace lockstep
