// RunWatch: measures a run's steps (time, memory, progress and profiles), reads the steps' figures (loss, gradient norm
// and others) from the device, and emits the run's events about the steps.
//
// Promise: a step computes the same results with and without a RunWatch. A step waits for the RunWatch only if the
// config asks for memory snapshots, or in the four steps that TimeAccount::DelayBeforeStep() delays on a GPU.
//
// Protocol, on the thread that trains:
//   1. Begin()
//   2. for each step: BeforeStep(), OnStep() for each attempt to make the step, and Queued() after an attempt has
//      succeeded. Then, for each report that NextSeen() returns, the caller decides whether the run continues, and
//      calls Tell() if it does. The last call for a step is EndStep()
//   3. after an epoch's last step: NextSeen() with `waits` until it returns nothing, EndEpoch(), Evaluation() if the
//      epoch is evaluated, BeginEpoch()
//   4. EndMemory(), EndProfile() if the run stops before its end, and ReportLast()
// The caller must do all other work between two steps inside Spend(), which counts the seconds of that work.
//
// what can fail -> what the caller sees -> the test that shows it
//   see trainer/run/time_account.h, memory_account.h, profiling.h and progress.h
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/tensor/named_tensor.h"
#include "config/schema/config.pb.h"
#include "observe/memory/memory_report.h"
#include "observe/metrics_ring.h"
#include "observe/run_event.h"
#include "trainer/run/fit.h"
#include "trainer/run/memory_account.h"
#include "trainer/run/profiling.h"
#include "trainer/run/progress.h"
#include "trainer/run/time_account.h"
#include "trainer/step/world.h"

namespace lockstep {

class RunWatch {
 public:
  // Keeps references to all arguments. If the config asks for memory snapshots, begins to record the allocator's
  // history. A RunWatch must be constructed before Fit::Begin(), so that the history contains the allocations of
  // Fit::Begin().
  RunWatch(const config::Config& config, const World& world, Fit& fit, RunEvents& events);

  struct Start {
    int64_t first_step = 0;      // the first step of this process, counted from 0
    int64_t total_steps = 0;     // the number of steps of the whole run
    double command_start_s = 0;  // when the user's command began, on the clock of base/clock.h
    std::string version;         // the version of the program
  };
  void Begin(const Start& start);
  // Says that this process continues a run after a failure (TimeAccount::ContinueAfter()).
  void ContinueAfter(int64_t step, double time) { time_.ContinueAfter(step, time); }
  // Stores the predicted memory of the run (MemoryAccount::Expect()).
  void ExpectMemory(std::optional<MemoryReport> foretold) { memory_.Expect(std::move(foretold)); }

  // Returns, on rank 0, how many steps the user has asked to profile so far. Returns 0 on other ranks.
  int64_t ProfilesAsked() { return profiling_->Asked(); }

  // Says that `step` begins now, so that the following time belongs to this step. In BeforeStep() and OnStep(), `step`
  // is counted from 0.
  void BeforeStep(int64_t step);
  // Calls `make`, which tries to make the step, and returns the result of `make`: whether the step fitted in memory.
  // `snapshots` are the tensors that hold snapshots for checkpoints (Checkpointing::memories()).
  bool OnStep(int64_t step, const std::vector<NamedTensor>& snapshots,
              const std::function<bool()>& make);
  // Returns the allocation that failed in the last OnStep(), which has returned false. Every rank must call it, and
  // every rank gets the same result.
  std::optional<FailedAllocation> FailedInStep() { return memory_.Failure(fit_.step()); }

  // Measures the step that was just queued on the device, and begins to read its figures. In all functions from here
  // on, `steps_done` is the number of the run's steps that were made or queued. `lr` is the step's learning rate, and
  // `is_last` says whether the step is the run's last one.
  void Queued(int64_t steps_done, double lr, bool is_last);
  // Returns the report of the oldest step that was not reported yet, if its figures have arrived from the device. If
  // `waits` is set, waits for the figures, and returns nothing only if all steps were reported.
  std::optional<StepReport> NextSeen(int64_t steps_done, bool waits = false);
  // Emits the events about the step of `report`. Call it only if the run continues after this step.
  void Tell(const StepReport& report);
  // Ends the measurement of a step. `evaluates` says whether an evaluation follows.
  void EndStep(int64_t steps_done, bool evaluates);
  // Emits an event for each sample of `dataset` that this rank could not read and that was not reported yet.
  void TellSkipped(const Dataset& dataset);
  void TellWhyNoGraph();  // emits, once, why steps run without the CUDA graph that was asked for

  void EndEpoch(int64_t steps_done);
  // Calls `evaluate`, and returns how many seconds it took. `snapshots` is as in OnStep().
  double Evaluation(int64_t steps_done, const std::vector<NamedTensor>& snapshots,
                    const std::function<void()>& evaluate);
  void BeginEpoch(int64_t steps_done);

  // Calls `act`, which does something between two steps, and returns how many seconds `act` took.
  double Spend(Loss loss, const std::function<void()>& act) { return time_.Spend(loss, act); }

  // Ends the profile that is being recorded, if there is one.
  void EndProfile(int64_t steps_done) { profiling_->AfterStep(steps_done, /*ends=*/true); }
  // Waits until memory snapshots are written, and emits the last events about memory (MemoryAccount::End()).
  void EndMemory() { memory_.End(); }
  // Returns the report on how the run's time was spent. Every rank must call it, and every rank gets the same result.
  SecondsReport ReportLast(int64_t steps_done) {
    return time_.ReportLast(fit_.input(), TimeAt(steps_done));
  }

  // Returns the number of the step that is being made or was made last, counted from 1; 0 before the first step.
  int64_t step() const { return progress_ ? progress_->step() : 0; }
  double first_step_s() const { return first_step_s_; }
  double samples_per_s() const { return progress_->samples_per_s(); }
  // Returns the fraction of the training time in which training waited for samples.
  double DataWaitShare();

 private:
  void CountFromHere();
  bool IsTold(int64_t steps_done, bool is_last) const;
  TimeAccount::Now TimeAt(int64_t steps_done) const;

  const config::Config& config_;
  const World& world_;
  Fit& fit_;
  RunEvents& events_;
  TimeAccount time_;
  MemoryAccount memory_;
  MetricsRing metrics_;
  Start start_;
  std::optional<Progress> progress_;    // has a value from Begin() on
  std::optional<Profiling> profiling_;  // has a value from Begin() on
  double first_step_s_ = 0;
  bool is_told_ = false;  // whether the step that was queued last gets a step line in the log
  bool told_why_no_graph_ = false;
};

}  // namespace lockstep
