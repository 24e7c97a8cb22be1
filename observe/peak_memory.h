// PeakMemory: measures the most memory that tensors take on a GPU, in each phase of a step.
//
// A replayed graph takes no memory beyond what its capture reserved, so only steps that run eagerly are measured.
#pragma once

#include <c10/core/Device.h>

#include <array>
#include <cstdint>

#include "observe/step_clock.h"

namespace lockstep {

class PeakMemory {
 public:
  explicit PeakMemory(at::Device device) : device_(device) {}

  // Call it when a step begins. The step is measured until its Phase::kRest.
  void Begin();

  // Call it when the step enters `phase`.
  void Mark(Phase phase);

  // The maximum number of bytes in each phase; 0 on the CPU.
  const std::array<int64_t, kPhases.size()>& bytes() const { return bytes_; }

  // Returns the maximum number of bytes in the run so far.
  int64_t Most() const;

 private:
  int64_t ReadPeak() const;

  at::Device device_;
  bool watching_ = false;
  Phase phase_ = Phase::kRest;
  std::array<int64_t, kPhases.size()> bytes_{};
  int64_t most_ = 0;
};

}  // namespace lockstep
