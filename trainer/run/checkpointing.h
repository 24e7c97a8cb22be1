// Checkpointing: decides when a run saves its state.
//
// Promise: all ranks save at the same steps. If the decision to save depends on one rank's clock or disk, the other
// ranks learn this decision through the values that each step sums over the ranks, or through a collective that all
// ranks run after the same step. A checkpoint is committed only after the host has read that the loss and the gradient
// of the checkpoint's step were finite. No checkpoint therefore holds the state after an anomaly. While a checkpoint is
// being written or waits to be committed, training continues, and no other checkpoint begins.
//
// what can fail -> what the caller sees -> the test that shows it (tests/checkpoint_fault_test.py)
//   a checkpoint cannot be written -> a warning, and the run goes on; for the last checkpoint, Error (kCheckpoint) on
//     every rank -> test_a_disk_that_fails
//   writing a checkpoint takes longer than the interval -> "checkpoint_late" in the log, and fewer checkpoints
//     -> tests/resume_test.py, test_a_slow_disk_makes_checkpoints_late
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>

#include "base/best_so_far.h"
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
  // `folder` is the run folder on rank 0, and null on other ranks. `attempt` is the unique name of the job. `manifest`
  // has the values that are the same in all checkpoints of this process, and `model_metadata` the metadata of the
  // models' files. If the run continues from a checkpoint of its own, `resumed_step` is the step of this checkpoint.
  // `state` returns the state to save; Checkpointing calls `state` on the thread that trains. The object keeps
  // references to `config`, `world` and `events`, and the pointer `folder`.
  Checkpointing(const config::Config& config, const World& world, RunFolder* folder,
                RunEvents& events, const std::string& attempt, const checkpoint::Manifest& manifest,
                const std::map<std::string, std::string>& model_metadata,
                std::optional<int64_t> resumed_step, std::function<CheckpointState()> state);

  // Returns, on rank 0, the longest time so far from taking a checkpoint's snapshot to committing the checkpoint, in
  // seconds; nothing if no checkpoint was committed.
  std::optional<double> slowest_s() const { return slowest_s_; }

  // Returns, on rank 0, how many checkpoints the config field checkpoint.every_minutes and the user have together asked
  // for so far. Returns 0 on other ranks.
  int64_t Asked();

  // Allows the checkpoint of `step`, if there is one, to be committed, and stores `asked`, the value that Asked()
  // returned on rank 0 in that step. Call it when the host has read the figures of `step`, and the loss and the
  // gradient are finite.
  void OnFigures(int64_t step, int64_t asked);

  // Saves the state if a checkpoint is due and no other checkpoint is being written. If `evaluation` is the best so far
  // by checkpoint.keep_best, saves the state in any case, and first waits until no other checkpoint is being written.
  // Call it after each step except the last. `ended_epoch` is the epoch that has ended with this step, counted from 1,
  // or 0 if no epoch has. `evaluation` has the metrics of the evaluation after this step, which are the same on all
  // ranks; it is empty if there was no evaluation. Throws Error.
  void AfterStep(int64_t steps_done, int64_t ended_epoch, std::span<const Metric> evaluation);

  // Saves the state after `steps_done` steps, unless this state was saved already or the run was resumed from it.
  // `see_figures` must call OnFigures() for all steps for which OnFigures() was not called yet. SaveLast() returns when
  // the checkpoint is committed. Throws Error on every rank.
  void SaveLast(int64_t steps_done, const std::function<void()>& see_figures);

  // Returns the tensors that hold the snapshot, on the device or on the host. Callers must not read or write their
  // values.
  const std::vector<NamedTensor>& memories() const { return saver_.memories(); }

  // Waits until no checkpoint is being written, releases the device memory of the snapshots on all ranks, and returns
  // true. Later snapshots use the host's memory. Returns false without waiting if no rank's snapshots take device
  // memory. `see_figures` is as in SaveLast(). Every rank must call LeaveDeviceMemory().
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
  std::optional<int64_t> begun_;  // the step of the checkpoint that began last
  // Whether the checkpoint of step `begun_` failed on this rank and the other ranks do not know it yet.
  bool failed_ = false;
  bool late_ = false;    // whether a due checkpoint waits for the previous one to end
  int64_t asked_ = 0;    // the value that Asked() returns
  int64_t heard_ = 0;    // the argument `asked` of the last OnFigures()
  bool wanted_ = false;  // whether a checkpoint was asked for and has not begun
  // The best value of the metric that checkpoint.keep_best names. Only evaluations by this process count, and only
  // those after the last checkpoint that failed. A checkpoint of an earlier process may have a better value.
  BestSoFar best_;
  std::optional<double> slowest_s_;
  // On rank 0: whether the user waits for a checkpoint, and whether the user waits for the checkpoint that began last.
  bool user_waits_ = false;
  bool user_waits_for_this_ = false;
  double begun_s_;  // when the last checkpoint began or was asked for, on the clock of base/clock.h
  double looked_s_ = 0;  // when Asked() last looked for a request of the user
};

}  // namespace lockstep
