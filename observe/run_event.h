// RunEvent: an event that a run reports while it trains, such as a finished step or a checkpoint.
//
// The training loop emits events and formats no text. A sink receives the events and writes them somewhere, for example
// to a log (observe/sinks/). A new sink is a file in observe/sinks/ and a line of trainer/run/sinks.cc.
//
// Invariants:
//   1. An event never makes the loop wait for the device, because the values in the event are already on the host.
//   2. RunStarted is the first event. If there is a RunStopped, a RunFailed or a RunDone, it is the last event.
//   3. Each rank emits events. A sink that is needed only once, such as the log, runs on rank 0.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "observe/histogram.h"
#include "observe/machine/machine_reading.h"
#include "observe/memory/allocation_failure.h"
#include "observe/memory/memory_report.h"
#include "observe/metrics.h"
#include "observe/step_clock.h"
#include "observe/verdict/ledger.h"
#include "observe/verdict/seconds_report.h"
#include "ops/update/step_values.h"

namespace lockstep {

struct RunStarted {
  std::string run_dir;
  std::string model;
  std::string version;
  std::string precision;
  int64_t restarts = 0;  // how often the job was started again after failures
  int ranks = 1;
  bool on_gpu = false;
  int64_t samples = 0;
  int64_t validation_samples = 0;
  int64_t epochs = 0;
  int64_t steps = 0;  // the number of steps of the whole run
  int64_t global_batch = 0;
  int64_t parameters = 0;
  int loader_threads = 0;
  std::optional<bool> decodes_on_gpu{};  // for images: whether a GPU decodes them
};

struct RunResumed {
  int64_t step = 0;
  std::string checkpoint;  // the path of the checkpoint
  int ranks = 1;           // the number of ranks that wrote the checkpoint
  bool is_of_another_run = false;
  // The differences between the checkpoint's config and this run's config.
  std::vector<std::string> differences{};
};

struct StepReport {
  // Whether the step is reported to the user in a StepDone. If not, only the step's figures are used.
  bool told = false;
  int64_t step = 0;   // the number of optimizer steps done
  int64_t epoch = 0;  // counted from 1
  double lr = 0;
  double samples_per_s = 0;
  double seconds_left = -1;  // the seconds until the run ends, with evaluations; negative: unknown
  double data_wait = 0;      // the fraction of the time in which the device waited for samples
  int loader_threads = 0;
  bool has_loss_scale = false;
  StepSeconds time{};
  int64_t batches_queued = 0;  // DeviceFeed::queued() when the step was queued
  std::array<double, ops::kStepFigures> figures{};

  double loss() const { return figures[ops::kLoss]; }
};

// A step is done. The event comes a few steps later, because the step's figures must first be copied from the device.
struct StepDone {
  StepReport report;
};

struct RunsWithoutGraph {
  std::string reason;
};

// A step ran out of memory. The run makes this step again with smaller micro-batches, and uses them in all later steps.
struct OutOfMemory {
  int64_t step = 0;  // the step that ran out of memory
  int64_t too_many = 0;
  int64_t micro_batch = 0;  // the size of the new micro-batches
  int64_t accumulation = 0;
  std::optional<FailedAllocation> failed{};  // known only on a GPU
};

// The config has `micro_batch: AUTO`, and the run has chosen the size and the number of a step's micro-batches.
struct MicroBatchChosen {
  int64_t step = 0;         // the first step with these micro-batches, counted from 1
  int64_t micro_batch = 0;  // the samples in a rank's micro-batch
  int64_t accumulation = 0;
  std::string why;
};

// The first step is done, and has run kernels that were generated for it on rank 0 (ops/generated/kernel_cache.h).
struct KernelsGenerated {
  int64_t compiled = 0;    // in this process
  int64_t kept = 0;        // found in the cache folder
  double compiling_s = 0;  // the time of the compilations, added up
  double waited_s = 0;     // how long the step has waited for them
};

// A step ran out of GPU memory. The run continues, and copies the snapshots for its checkpoints to the host's memory
// instead of the GPU's memory.
struct CheckpointsLeftDevice {
  int64_t step = 0;
};

// A step ran out of memory while the CUDA graphs of other steps held memory. The step is made again after these graphs
// are freed, and the graphs are captured again later.
struct GraphsGaveWay {
  int64_t step = 0;
};

// A sample cannot be read and was replaced by another sample.
struct BadSample {
  std::string reason;
};

// All steps of an epoch are done. If the run was resumed in the middle of the epoch, the figures are those of the steps
// since the resume.
struct EpochDone {
  int64_t step = 0;
  int64_t epoch = 0;   // from 1
  double loss = 0;     // the mean training loss over the samples of the steps
  double seconds = 0;  // the time that the steps took
  double samples_per_s = 0;
};

struct Evaluated {
  int64_t step = 0;
  int64_t epoch = 0;
  std::vector<Metric> metrics;
};

// Histograms of the parameters and of their gradients (trainer/step/histograms.h), on rank 0. The event comes before
// the step's StepDone.
struct Histograms {
  int64_t step = 0;  // from 1; the values are those before the step's update
  std::vector<Histogram> histograms;
};

struct CheckpointSaved {
  int64_t step = 0;
  double stall_s = 0;  // the time for which the snapshot stopped training on rank 0
  double seconds = 0;  // the time from the snapshot to the commit
  int64_t bytes = 0;   // the size of all ranks' files
};

// A checkpoint was due while the previous checkpoint was still being written.
struct CheckpointLate {
  int64_t step = 0;
};

struct CheckpointFailed {
  int64_t step = 0;
  std::string reason;
};

struct RunWarning {
  std::string reason;
};

// Some steps were profiled (observe/profile/profile_files.h).
struct Profiled {
  int64_t step = 0;   // the first profiled step
  int64_t steps = 0;  // the number of profiled steps
  std::string folder;
  // Sentences that say which kernels have become slower since the run's first profile.
  std::vector<std::string> slower;
};

// The run was asked to stop. If the run is started again, it continues after `step`.
struct RunStopped {
  int64_t step = 0;
  int64_t steps = 0;  // the number of steps of the whole run
  int64_t epoch = 0;
  std::string why;
};

struct RunDone {
  int64_t step = 0;
  int64_t epoch = 0;
  std::vector<Metric> metrics;  // the metrics of the last evaluation
  std::string weights;          // the file of the final weights
  double first_step_s = 0;  // the time from the start of the command to the end of the first step
  // The speed of training, without evaluations; if there are several epochs, also without the first epoch.
  double samples_per_s = 0;
  double total_s = 0;
  double data_wait = 0;  // the fraction of the training time in which the device waited for samples
  // Why the run ended before its last step (early_stopping); empty: the run made all steps.
  std::string early;
};

// The run ends because of an error.
struct RunFailed {
  int64_t step = 0;  // the step that was being made, counted from 1
  int status = 0;    // the exit status of the process
  std::string reason;
};

using RunEvent =
    std::variant<RunStarted, RunResumed, StepDone, RunsWithoutGraph, MemoryReport, MicroBatchChosen,
                 KernelsGenerated, OutOfMemory, CheckpointsLeftDevice, GraphsGaveWay, BadSample,
                 EpochDone, Evaluated, CheckpointSaved, CheckpointLate, CheckpointFailed,
                 RunWarning, Profiled, RunStopped, RunFailed, RunDone, MachineReading,
                 SecondsReport, Histograms>;

// Receives the events of a run, for example to write them to a log. On() is called on the training thread.
class EventSink {
 public:
  virtual ~EventSink() = default;
  virtual void On(const RunEvent& event) = 0;
};

// Holds all sinks of a rank, and passes the events of the rank to them.
class RunEvents {
 public:
  void Add(std::unique_ptr<EventSink> sink) { sinks_.push_back(std::move(sink)); }
  void Emit(const RunEvent& event) {
    for (const std::unique_ptr<EventSink>& sink : sinks_) sink->On(event);
  }

  // Sets the number of optimizer steps that the run has made. Must be called after every step, because not every step
  // has an event.
  void SetSteps(int64_t steps) { steps_->store(steps, std::memory_order_relaxed); }
  // Returns a counter that holds the last value given to SetSteps(), or 0 before the first call of SetSteps(). Any
  // thread may read the counter, even after this object is destroyed.
  std::shared_ptr<const std::atomic<int64_t>> steps() const { return steps_; }

 private:
  std::shared_ptr<std::atomic<int64_t>> steps_ = std::make_shared<std::atomic<int64_t>>(0);
  std::vector<std::unique_ptr<EventSink>> sinks_;
};

}  // namespace lockstep
