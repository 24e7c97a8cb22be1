// MetricsRing: reads the figures of a step (loss, norm and others) from the device a few steps later, so that the host
// need not wait for the device.
//
// Promise: Pop returns the figures that Push took, in the same order. On a GPU Push only enqueues a copy into pinned
// memory, and Pop returns a step's figures when kLag further steps have begun. If the copy is not done by then, Pop
// waits for the copy.
//
// Invariant: how many reports Pop has returned depends only on the step number, not on time, so all ranks see the same
// figures at the same step.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/cuda/CUDAEvent.h>
#include <c10/core/Device.h>

#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "observe/run_event.h"

namespace lockstep {

class MetricsRing {
 public:
  explicit MetricsRing(at::Device device) : on_gpu_(device.is_cuda()) {}

  // Begins a step. Must be called before the step's Push(). If `delay_s` is positive, a GPU waits for `delay_s` seconds
  // before it begins the step, and the step's report has no time.total. If the host has queued the whole step before
  // this wait ends, the report's time.unbroken is the time that the GPU alone takes for the step.
  void BeginStep(double delay_s = 0);

  // Adds the report of a step. Pop() fills in the report's figures and, on a GPU, the report's time.total, time.idle
  // and time.unbroken. `figures` is float64 [ops::kStepFigures] on the device, and is read after the work that is
  // already enqueued on the current stream.
  void Push(const StepReport& report, const at::Tensor& figures);

  // Returns the complete report of the oldest step if that step is at least kLag steps before `step`; otherwise
  // nothing. On a CPU the report is returned without this lag.
  std::optional<StepReport> Pop(int64_t step);

  // Returns the report of the oldest step, and waits for its figures if necessary; nothing if there is no report.
  std::optional<StepReport> PopAnyway();

 private:
  static constexpr int64_t kLag = 8;

  using Event = std::shared_ptr<at::cuda::CUDAEvent>;

  struct Entry {
    StepReport report;
    at::Tensor figures;  // on the host
    // On a GPU: the moments at which the device began and finished the step. `begin` is recorded only if the device had
    // finished the previous step before BeginStep(), or if the step is delayed.
    Event begin;
    Event end;
    // Whether the device waited for `delay_s` before the step. If so, the step's total time does not count.
    bool is_delayed = false;
    bool is_unbroken = false;  // whether the whole step was queued before the device began it
  };

  Event NewEvent();
  void TakeTime(Entry& entry);

  bool on_gpu_;
  std::deque<Entry> entries_;
  std::vector<at::Tensor> free_;  // tensors on the host that Push() can use again
  std::vector<Event> free_events_;
  Event begin_;              // the begin event of the step that is being queued
  bool is_delayed_ = false;  // whether the device waits before the step that is being queued
  Event last_end_;           // the end event of the last step that was popped
};

}  // namespace lockstep
