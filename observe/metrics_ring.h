// MetricsRing: reads the figures of a step (loss, norm and others) from the device a few steps later, so that the host
// need not wait for the device.
//
// Promise: Pop() returns the figures that Push() took, in the same order. On a GPU Push() only enqueues a copy into
// pinned memory, and Pop(step) returns the figures of a step only if that step is at least kLag steps before `step`. If
// the copy is not done by then, Pop() waits for the copy.
//
// Invariant: how many reports Pop() has returned depends only on the step number, not on time, so all ranks see the
// same figures at the same step.
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

  // Begins a step. Must be called before the step's Push(). If `delay_s` is positive, the step is delayed: a GPU waits
  // for about `delay_s` seconds or longer before it begins the step. A CPU ignores `delay_s`.
  void BeginStep(double delay_s = 0);

  // Adds the report of a step. Pop() fills in the report's figures and, on a GPU, these times:
  //   time.total, time.idle  only if the step was not delayed and is not the first step
  //   time.unbroken          only if the step was delayed, and the host had queued the whole step before the delay
  //                          ended: the time that the GPU alone takes for the step
  // `figures` is float64 [ops::kStepFigures] on the device, and is read after the work that is already enqueued on the
  // current stream.
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
    // On a GPU: the moments at which the device began and finished the step. `begin` is null if the step is not delayed
    // and the device was still working on the previous step at the call of BeginStep().
    Event begin;
    Event end;
    // Whether the device waited before the step (BeginStep()). A delayed step has no time.total and no time.idle.
    bool is_delayed = false;
    // Whether the step was delayed, and the host had queued the whole step before the delay ended.
    bool is_unbroken = false;
  };

  Event NewEvent();
  void TakeTime(Entry& entry);

  bool on_gpu_;
  std::deque<Entry> entries_;
  std::vector<at::Tensor> free_;  // tensors on the host that Push() can use again
  std::vector<Event> free_events_;
  Event begin_;              // the begin event of the step that is being queued
  bool is_delayed_ = false;  // whether the device waits before the step that is being queued
  Event last_end_;           // the end event of the step that Pop() returned last
};

}  // namespace lockstep
