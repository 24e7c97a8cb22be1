// StepClock: how long steps take, and how much of that they wait for communication; of the device
// where there is one, so that nothing waits in order to be measured.
#pragma once

#include <c10/core/Device.h>

#include <memory>
#include <utility>
#include <vector>

namespace lockstep {

// Milliseconds, of one step each.
struct StepTimes {
  std::vector<double> step_ms;
  std::vector<double> wait_ms;
};

class StepClock {
 public:
  explicit StepClock(at::Device device);
  ~StepClock();

  // A step begins, and the one before it ends.
  void BeginStep();

  // Calls `wait`, which waits for communication (on a GPU: makes the current stream wait). What a
  // model's BatchNorm or a norm over sharded gradients exchange is not among it.
  template <typename Wait>
  void Waiting(const Wait& wait) {
    Mark(kWaitBegins);
    wait();
    Mark(kWaitEnds);
  }

  // Of the steps that have ended. Waits for the device.
  StepTimes Times() const;

 private:
  enum Kind { kStepBegins, kWaitBegins, kWaitEnds };
  struct Entry;

  void Mark(Kind kind);

  bool on_gpu_;
  std::vector<Entry> entries_;
};

}  // namespace lockstep
