// The folder of a run: config.pbtxt, log.jsonl, checkpoints and weights.safetensors.
//
// log.jsonl holds one JSON object a line, each with "event":
//   start  restarts (after failures, by --restarts), version, world_size, device, samples, validation_samples,
//     steps, precision, parameters, loader_threads; of images decode (GPU or CPU)
//   resume  step (of the checkpoint that the run goes on from), checkpoint (its path), ranks (that wrote it),
//     and, where it is another run's, differences of the configs;
//     lines of later steps that stand before it were of a process that ended
//   step   step (optimizer steps done), epoch (from 1), loss (the step's mean over the global
//     batch), lr, samples_per_s (over all ranks, since the line before), data_wait (the share of that
//     time in which rank 0's device stood still for want of samples), loader_threads (of rank 0, now),
//     grad_norm (before clipping); in FP16 loss_scale; skipped_steps (so far, without an update) if
//     there are any
//   memory  forward_bytes, backward_bytes, exchange_bytes, update_bytes, rest_bytes: the most that
//     tensors took on rank 0's GPU in each phase of the first step
//   out_of_memory  step (that did not fit), micro_batch, accumulation: what the run goes on with
//   checkpoints_left_device  step (that did not fit): from then on checkpoints are copied to the host's memory
//   no_graph  reason
//   bad_sample  reason (with the file's path), of rank 0's samples that others stand for
//   eval   step, epoch, and the task's metrics (observe/metrics.h) of the validation samples
//   checkpoint  step, stall_ms (of training on rank 0, for its snapshot), seconds (from then until it was
//     committed), bytes (of all ranks)
//   checkpoint_late  step: it was due while the one before was still being written
//   checkpoint_failed  step, reason
//   stopped  step, epoch, why: the run was asked to stop there, and goes on from there when it is started again
//   warning  reason
//   done   step, epoch, the last metrics, first_step_s (from the start of the command to the end of
//     the first step), samples_per_s (training alone, after the first epoch if there is a second),
//     total_s, data_wait (over all of training), data_limit (in words, where that is much)
//
// what can fail -> what the caller sees -> the test that shows it (tests/resume_test.py)
//   the folder is no run's, or a finished one's without checkpoints -> Error (kUsage)
//     -> test_what_is_no_run_is_left_alone
//   another process trains in it -> Error (kUsage) -> test_two_runs_at_once
//   the newest checkpoint is damaged -> a warning, and the one before is taken
//     -> test_damage_is_named_and_the_one_before_taken
//   all are -> Error (kCheckpoint) -> test_all_damaged
//   the config is another run's -> Error (kUsage) with the fields -> test_another_config_is_refused
//   the folder is removed while the run trains -> it is made again, with the state, and the run ends
//     -> tests/stop_test.py, test_a_folder_that_is_removed
//   ... and another job trains there -> Error (kCheckpoint) -> tests/stop_test.py, test_a_folder_that_is_replaced
//   the disk takes no more lines -> one warning; they follow when it does
//     -> tests/checkpoint_fault_test.py, test_a_log_that_cannot_be_written
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/files/output_file.h"
#include "ckpt/checkpoint.h"
#include "ckpt/run_lock.h"
#include "trainer/config/schema/config.pb.h"

namespace lockstep {

// Of the file that names the samples of the step that an anomaly ended, with anomaly { policy: STOP_AND_SAVE }.
std::string AnomalyPath(const std::string& run_dir);

class RunFolder {
 public:
  // Makes the folder of config.run_dir, or opens the one that is there, and locks it for `job`, a name that is
  // no other job's. `fresh`: gives one that is there another name first. Throws Error (kUsage, kCheckpoint).
  RunFolder(const config::Config& config, const std::string& job, bool fresh);

  // What to go on from: the newest checkpoint that was not rejected; nothing: there is none.
  std::optional<Checkpoint> newest() const;

  // That one is damaged.
  void Reject(const std::string& why);

  // It is whole, or there is none and the run begins. `differences`: of this run's config from its. Throws Error
  // (kUsage, kCheckpoint) where it must not go on from there.
  void Accept(const std::vector<std::string>& differences) const;

  // The run begins or goes on: writes config.pbtxt, sets aside what is damaged, and opens the log. To be
  // called once, before the others. Throws Error (kCheckpoint).
  void Begin(const config::Config& config);

  // What the user should know of how it was opened.
  const std::vector<std::string>& warnings() const { return warnings_; }

  // Appends one line to log.jsonl. What the disk does not take is written with a later line.
  void Log(const nlohmann::ordered_json& event);

  // Whether somebody wants a checkpoint (ckpt/checkpoint.h, RequestPath()), and: it was made, or cannot be.
  bool CheckpointIsRequested() const;
  void AnswerRequest();

  // In words, what its user has done that ends the run: a STOP (StopPath()), or the folder is removed or another job's;
  // empty: nothing. And: it has ended.
  std::string WhyUserStops() const;
  void AnswerStop();

  // To be called before the run's last state is written. Makes the folder again where it was removed. Throws Error
  // (kCheckpoint) where it is another job's, which is left alone.
  void RequireOwn(const config::Config& config);

  const std::string& path() const { return path_; }

 private:
  bool IsRemoved() const;

  std::string path_;
  std::string job_;
  std::optional<RunLock> lock_;
  std::vector<Checkpoint> checkpoints_;  // the newest first
  size_t damaged_ = 0;                   // of them, the first
  std::vector<std::string> warnings_;
  std::optional<OutputFile> log_;
  int64_t log_bytes_ = 0;
  std::string unwritten_;  // of the log
};

}  // namespace lockstep
