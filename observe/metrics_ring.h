// MetricsRing: reads the figures of a step (loss, norm and others) from the device a few steps later, so that the host
// need not wait for the device.
//
// Promise: Pop returns the figures that Push took, in the same order. On a GPU Push only enqueues a copy into pinned
// memory. Pop returns a step's figures when kLag further steps have begun; the copy is done by then.
//
// Invariant: Pop's results depend on the step number alone, not on time, so all ranks see the same
// figures at the same step.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <deque>
#include <functional>
#include <optional>
#include <vector>

#include "observe/run_event.h"

namespace lockstep {

class MetricsRing {
 public:
  explicit MetricsRing(at::Device device) : on_gpu_(device.is_cuda()) {}

  // Adds the report of a step, without its figures. `figures` is float64 [ops::kStepFigures] on the device. It is read
  // after the work that is enqueued on the current stream.
  void Push(const StepReport& report, const at::Tensor& figures);

  // Returns the complete report of the oldest step that is at least kLag steps before `step`, if there is one.
  std::optional<StepReport> Pop(int64_t step);

  // Returns the report of the oldest step, and waits for its figures if necessary.
  std::optional<StepReport> PopAnyway();

 private:
  static constexpr int64_t kLag = 8;

  struct Entry {
    StepReport report;
    at::Tensor figures;  // on the host
    std::function<void()> until_copied;
  };

  bool on_gpu_;
  std::deque<Entry> entries_;
  std::vector<at::Tensor> free_;  // host tensors that can be used again
};

}  // namespace lockstep
