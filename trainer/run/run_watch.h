// RunWatch: measures a run's steps (time, memory, progress and profiles), reads their figures from the device, and
// emits the run's events about them.
//
// Promise: a step computes the same with and without a RunWatch, and never waits for it.
//
// Protocol, on the thread that trains:
//   1. Begin()
//   2. for each step: BeforeStep(), OnStep() around each attempt to make it, Queued() after an attempt succeeded. Then,
//      for each report that NextSeen() returns, the caller decides whether the run goes on, and calls Tell(). At last
//      EndStep()
//   3. after an epoch's last step: NextSeen() with `waits` for all steps, EndEpoch(), Evaluation() if there is one,
//      BeginEpoch()
//   4. EndMemory(), EndProfile() if the run stops before its end, and ReportLast()
// The caller must do all other work between two steps inside Spend(), which counts its seconds.
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
  // Keeps references to all arguments. Begins to record the allocator's history if the config asks for it. Therefore
  // construct a RunWatch before Fit::Begin().
  RunWatch(const config::Config& config, const World& world, Fit& fit, RunEvents& events);

  struct Start {
    int64_t first_step = 0;      // the first step of this process, counted from 0
    int64_t total_steps = 0;     // the number of steps of the whole run
    double command_start_s = 0;  // when the user's command began, on the clock of base/clock.h
    std::string version;         // the version of the program
  };
  void Begin(const Start& start);
  // Says that this process continues a run after a failure (TimeAccount::ContinueAfter).
  void ContinueAfter(int64_t step, double time) { time_.ContinueAfter(step, time); }
  // Takes the memory that was foretold for the run (MemoryAccount::Expect()).
  void ExpectMemory(std::optional<MemoryReport> foretold) { memory_.Expect(std::move(foretold)); }

  // On rank 0, returns how many steps the user has asked to profile so far. On other ranks, returns 0.
  int64_t ProfilesAsked() { return profiling_->Asked(); }

  // In BeforeStep() and OnStep(), `step` is counted from 0.
  void BeforeStep(int64_t step);
  // Calls `make`, which tries to make the step, and returns its result: whether memory sufficed. `snapshots` is the
  // memory of checkpoints (Checkpointing::memories()).
  bool OnStep(int64_t step, const std::vector<NamedTensor>& snapshots,
              const std::function<bool()>& make);
  // After OnStep() has returned false, returns the allocation that failed. Every rank must call it, and every rank gets
  // the same result.
  std::optional<FailedAllocation> FailedInStep() { return memory_.Failure(fit_.step()); }

  // In this function and the functions below, `steps_done` is the number of steps done. `lr` is the step's learning
  // rate, and `is_last` says that the run ends.
  void Queued(int64_t steps_done, double lr, bool is_last);
  // Returns the report of the oldest step whose figures have arrived from the device and were not returned yet, if
  // there is one. `waits` says whether to wait for the figures of queued steps.
  std::optional<StepReport> NextSeen(int64_t steps_done, bool waits = false);
  // Emits the events about a step. Call it only if the run goes on after this step.
  void Tell(const StepReport& report);
  // `evaluates` says that an evaluation follows.
  void EndStep(int64_t steps_done, bool evaluates);
  // Reports the samples that this rank could not read.
  void TellSkipped(const Dataset& dataset);
  void TellWhyNoGraph();

  void EndEpoch(int64_t steps_done);
  // Calls `evaluate`, and returns its seconds. `snapshots`: as in OnStep().
  double Evaluation(int64_t steps_done, const std::vector<NamedTensor>& snapshots,
                    const std::function<void()>& evaluate);
  void BeginEpoch(int64_t steps_done);

  // Calls `act`, which does something between two steps, and returns its seconds.
  double Spend(Loss loss, const std::function<void()>& act) { return time_.Spend(loss, act); }

  // Ends a profile that is being recorded.
  void EndProfile(int64_t steps_done) { profiling_->AfterStep(steps_done, /*ends=*/true); }
  // Waits until memory snapshots are written, and emits the last events about memory (MemoryAccount::End()).
  void EndMemory() { memory_.End(); }
  // Returns the report on how the run's time was spent. Every rank must call it, and every rank gets the same result.
  SecondsReport ReportLast(int64_t steps_done) {
    return time_.ReportLast(fit_.input(), TimeAt(steps_done));
  }

  // Returns the step that is under way or was made last, counted from 1; 0 if there is none.
  int64_t step() const { return progress_ ? progress_->step() : 0; }
  double first_step_s() const { return first_step_s_; }
  double samples_per_s() const { return progress_->samples_per_s(); }
  // Returns the share of the time of training in which training waited for samples.
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
  std::optional<Progress> progress_;    // since Begin()
  std::optional<Profiling> profiling_;  // since Begin()
  double first_step_s_ = 0;
  bool is_told_ = false;  // whether the step that was queued last gets a log line
  bool told_why_no_graph_ = false;
};

}  // namespace lockstep
