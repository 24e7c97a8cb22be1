// MicroBatchChoice: chooses how many micro-batches a step has, for micro_batch: AUTO.
//
// Promise: every rank gets the same number. The number is the smallest power of two with which the predicted memory
// (trainer/run/foretell.h) fits into each rank's GPU. If possible, 5 % of the GPU's memory is left free. No training
// step is run to choose the number, and the number is not stored. The result of a step does not depend on the number of
// micro-batches.
//
// what can fail -> what the caller sees -> the test that shows it
//   not even one sample fits -> as many micro-batches as a rank has samples, so that the first step runs out of memory
//     and throws an Error -> tests/memory_test.py
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
  // Keeps references to all arguments. `foreteller` predicts this rank's memory; null: it cannot be predicted. Every
  // rank must construct a MicroBatchChoice at the same time, because the ranks agree on the number.
  MicroBatchChoice(const config::Config& config, Foreteller* foreteller, const World& world);

  // Returns the number chosen at the start; nothing unless the config has micro_batch: AUTO.
  const std::optional<MicroBatchChosen>& chosen() const { return chosen_; }

  // Returns a new choice if so much GPU memory has become free since the last choice that a step fits with fewer than
  // `accumulation` micro-batches; otherwise nothing. Free memory is checked only before some steps, which are the same
  // on every rank. Call it on every rank before step `step`, counted from 0, which would have `accumulation`
  // micro-batches.
  std::optional<MicroBatchChosen> Fewer(int64_t step, int64_t accumulation);

 private:
  // Returns how many bytes of the GPU's memory this run may use if the fraction `left` of the GPU's memory is left
  // free.
  int64_t Room(double left) const;
  // Returns the smallest number of micro-batches, among the powers of two, with which this rank's predicted memory
  // fits. If it fits with no such number, returns the number of samples that this rank has in a step. Throws Error if
  // the memory cannot be predicted.
  int64_t FewestThatFit();
  MicroBatchChosen Choose(int64_t step);

  const config::Config& config_;
  const World& world_;
  Foreteller* foreteller_;  // null: the memory cannot be predicted
  std::optional<MicroBatchChosen> chosen_;
  int64_t room_ = 0;          // the result of Room() at the last choice
  int64_t look_every_ = 256;  // steps between two checks of free memory
};

}  // namespace lockstep
