// MicroBatchChoice: chooses how many micro-batches a step has, for micro_batch: AUTO.
//
// Promise: every rank gets the same number. It is the least power of two with which the memory that is foretold
// (trainer/run/foretell.h) fits into each rank's GPU, with 5 % of the GPU left where that can be, and nothing is
// measured or remembered for it. The step computes the same with any number.
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

  // Before step `step`, counted from 0, which would be made in `accumulation` micro-batches: returns how few the GPUs
  // have room for by now, if they are fewer. It looks from time to time, on every rank at the same steps. Every rank
  // must call it.
  std::optional<MicroBatchChosen> Fewer(int64_t step, int64_t accumulation);

 private:
  // Returns the bytes of the GPU's memory that this run may use if the share `left` of the GPU is left free.
  int64_t Room(double left) const;
  // Throws Error.
  int64_t FewestThatFit();
  MicroBatchChosen Choose(int64_t step);

  const config::Config& config_;
  const World& world_;
  Foreteller* foreteller_;  // null: not known
  std::optional<MicroBatchChosen> chosen_;
  int64_t room_ = 0;          // when the last choice was made
  int64_t look_every_ = 256;  // steps
};

}  // namespace lockstep
