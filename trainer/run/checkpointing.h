// Checkpointing: decides when a run saves its state.
//
// Promise: all ranks save at the same steps. If a rank's clock or disk decides something, the other ranks learn the
// decision through the values that each step sums over the ranks, or through a collective that all ranks make at the
// same step. A checkpoint is committed only after the host has seen that the loss and the gradient of its step were
// finite. No checkpoint therefore holds the state after an anomaly. While a checkpoint is being written or waits for
// its commit, training goes on, and no other checkpoint begins.
//
// what can fail -> what the caller sees -> the test that shows it (tests/checkpoint_fault_test.py)
//   a checkpoint cannot be written -> a warning, and the run goes on; for the last checkpoint, Error (kCheckpoint) on
//     every rank -> test_a_disk_that_fails
//   the disk is slower than the interval -> "checkpoint_late" in the log, and fewer checkpoints
//     -> tests/resume_test.py, test_a_slow_disk_makes_checkpoints_late
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "ckpt/manifest.pb.h"
#include "ckpt/saver.h"
#include "config/schema/config.pb.h"
#include "data/dataset/dataset.h"
#include "observe/metrics.h"
#include "observe/run_event.h"
#include "trainer/run/checkpoint_state.h"
#include "trainer/run/run_folder.h"
#include "trainer/step/world.h"

namespace lockstep {

class Checkpointing {
 public:
  // `folder` is the run folder on rank 0, and null on other ranks. `manifest` has the values that are the same in all
  // checkpoints. `resumed_step` is the step of the checkpoint from which the run continues, if there is one. `state`
  // returns the state to save; it is called on the thread that trains. Keeps references to all arguments except
  // `manifest`.
  Checkpointing(const config::Config& config, const World& world, RunFolder* folder,
                RunEvents& events, const std::string& attempt, const checkpoint::Manifest& manifest,
                std::optional<int64_t> resumed_step, std::function<CheckpointState()> state);

  // On rank 0, returns the longest time from a snapshot to its commit so far; nothing if no checkpoint was committed.
  std::optional<double> slowest_s() const { return slowest_s_; }

  // On rank 0, returns how many checkpoints checkpoint.every_minutes and the user have asked for so far. On other
  // ranks, returns 0.
  int64_t Asked();

  // Call it when the host has read the figures of `step`, and loss and gradient are finite. `asked` is the result of
  // Asked() on rank 0 in that step.
  void OnFigures(int64_t step, int64_t asked);

  // Call it after each step except the last. `ended_epoch` is the epoch that has ended, counted from 1, or 0 if none
  // has. `evaluation` has the metrics of the validation after this step, the same on all ranks; it is empty if there
  // was none. Throws Error.
  void AfterStep(int64_t steps_done, int64_t ended_epoch, std::span<const Metric> evaluation);

  // Saves the state after `steps_done` steps, unless it was saved already or the run was resumed from it. `see_figures`
  // must call OnFigures() for all steps. Returns when the checkpoint is committed. Throws Error on every rank.
  void SaveLast(int64_t steps_done, const std::function<void()>& see_figures);

  // The tensors that hold the snapshot, on the device or on the host. Callers must not read or write their values.
  const std::vector<NamedTensor>& memories() const { return saver_.memories(); }

  // Waits until no checkpoint is being written, and then releases the device memory of the snapshots on all ranks.
  // Later snapshots use the host's memory. Returns false if snapshots take no device memory. Every rank must call it.
  bool LeaveDeviceMemory(const std::function<void()>& see_figures);

 private:
  bool IsDue(int64_t steps_done, int64_t ended_epoch) const;
  bool IsBest(std::span<const Metric> evaluation);
  void Save(int64_t steps_done);
  void FinishSaving();
  void Tell();
  void Tell(const Saver::Outcome& outcome);
  bool OnAny(bool own, const char* what) const;

  const config::Checkpoint& when_;
  const World& world_;
  RunFolder* folder_;
  RunEvents& events_;
  std::function<CheckpointState()> state_;
  Saver saver_;
  std::optional<int64_t> begun_;  // the step of the last checkpoint
  // Whether the checkpoint of step `begun_` failed on this rank and the other ranks do not know it yet.
  bool failed_ = false;
  bool late_ = false;    // whether a checkpoint is due that could not begin in time
  int64_t asked_ = 0;    // the value that Asked() returns
  int64_t heard_ = 0;    // the argument `asked` of the last OnFigures()
  bool wanted_ = false;  // whether a checkpoint was asked for
  // The best value of the metric checkpoint.keep_best since this process began or since a checkpoint failed. An earlier
  // checkpoint may have a better value.
  std::optional<double> best_;
  std::optional<double> slowest_s_;
  // On rank 0: whether the user waits for a checkpoint, and whether it is the one that is being written.
  bool user_waits_ = false;
  bool user_waits_for_this_ = false;
  double begun_s_;       // when the last checkpoint began
  double looked_s_ = 0;  // when Asked() last looked for requests of the user
};

}  // namespace lockstep
