// Checkpointing: decides when a run saves its state.
//
// Promise: all ranks save the same steps. If a rank's clock or disk decides something, the other ranks learn the
// decision through the step's own sums or through a collective that all ranks make at the same step. A checkpoint is
// committed only after the host has seen that the loss and the gradient of its step were finite. No checkpoint
// therefore holds the state after an anomaly. While a checkpoint is being written or waits for its commit, training
// goes on, and the next checkpoint waits.
//
// what can fail -> what the caller sees -> the test that shows it (tests/checkpoint_fault_test.py)
//   a checkpoint cannot be written -> a warning, and the run goes on; the last one: Error (kCheckpoint) on every
//     rank -> test_a_disk_that_fails
//   the disk is slower than the interval -> "checkpoint_late" in the log, and fewer checkpoints
//     -> tests/resume_test.py, test_a_slow_disk_makes_checkpoints_late
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "ckpt/manifest.pb.h"
#include "ckpt/saver.h"
#include "data/dataset/dataset.h"
#include "observe/run_event.h"
#include "trainer/config/schema/config.pb.h"
#include "trainer/run/run_folder.h"
#include "trainer/run/run_state.h"
#include "trainer/step/world.h"

namespace lockstep {

class Checkpointing {
 public:
  // `folder`: rank 0's, else null. `manifest`: what is the same in all checkpoints. `resumed_step`: of the checkpoint
  // that the run goes on from; nothing: of none. `state` is called where one is saved, on the thread that trains.
  // Refers to all but `manifest`.
  Checkpointing(const config::Config& config, const World& world, RunFolder* folder,
                RunEvents& events, const std::string& attempt, const checkpoint::Manifest& manifest,
                std::optional<int64_t> resumed_step, std::function<RunState()> state);

  // Of those that were committed, from the snapshot on; nothing: there are none. On rank 0.
  std::optional<double> slowest_s() const { return slowest_s_; }

  // On rank 0: how many checkpoints its clock and its user have asked for so far; on the others 0.
  int64_t Asked();

  // The figures of `step` were seen, and there was nothing wrong with them. `asked`: what rank 0 had asked for.
  void OnFigures(int64_t step, int64_t asked);

  // To be called after each step but the last. `ended_epoch`: from 1; 0: none ended. Throws Error.
  void AfterStep(int64_t steps_done, int64_t ended_epoch, bool validated);

  // Nobody needs the state of any step before `steps_done` any more: `see_figures` makes OnFigures() be called
  // for all. Saves it, unless the run was resumed from that step or it is saved. Returns once it is committed.
  // Throws Error on every rank.
  void SaveLast(int64_t steps_done, const std::function<void()>& see_figures);

  // Gives up memory of the device, on all ranks, once nothing is being written any more; false: there is none.
  // Every rank must call it.
  bool LeaveDeviceMemory(const std::function<void()>& see_figures);

 private:
  bool IsDue(int64_t steps_done, int64_t ended_epoch, bool validated) const;
  void Save(int64_t steps_done);
  void FinishSaving();
  void Tell();
  void Tell(const Saver::Outcome& outcome);
  bool OnAny(bool own, const char* what) const;

  const config::Checkpoint& when_;
  const World& world_;
  RunFolder* folder_;
  RunEvents& events_;
  std::function<RunState()> state_;
  Saver saver_;
  std::optional<int64_t> begun_;  // the step of the last checkpoint
  bool failed_ = false;           // that one, on this rank, and the others do not know yet
  bool late_ = false;             // one is due
  int64_t asked_ = 0;             // what Asked() says
  int64_t heard_ = 0;             // what OnFigures() was told
  bool wanted_ = false;           // one was asked for
  std::optional<double> slowest_s_;
  // On rank 0: the user waits for one, and for that which is being written.
  bool user_waits_ = false;
  bool user_waits_for_this_ = false;
  double begun_s_;       // when the last one began
  double looked_s_ = 0;  // for the user's wishes
};

// Throws Error (kUsage) where checkpoint.keep_best names no metric of `validation` (null: none).
void RequireMetric(const std::string& metric, const Dataset* validation);

}  // namespace lockstep
