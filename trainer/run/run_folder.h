// The folder of a run: config.pbtxt, log.jsonl, checkpoints and weights.safetensors.
//
// log.jsonl holds one JSON object in each line. The field "event" names the kind of event, and the other fields are:
//   start  restarts (how often --restarts has started the job again), version, world_size, device, samples,
//     validation_samples, steps, precision, parameters, loader_threads; for images also decode (GPU or CPU)
//   resume  step (of the checkpoint from which the run goes on), checkpoint (its path), ranks (the number of ranks that
//     wrote the checkpoint); if the checkpoint belongs to another run, also differences (of the two configs). Lines
//     before this line may be of later steps than the checkpoint: the process that wrote them has ended, and the run
//     makes these steps again
//   step   step (optimizer steps done), epoch (from 1), loss (the step's mean over the global batch), lr, samples_per_s
//     (of all ranks, since the previous step line), data_wait (the share of that time in which rank 0's device waited
//     for samples), loader_threads (of rank 0, at this moment), grad_norm (before clipping); in FP16 also loss_scale;
//     if there were steps without an update, also skipped_steps (their number so far)
//   memory  forward_bytes, backward_bytes, exchange_bytes, update_bytes, rest_bytes: the most that
//     tensors took on rank 0's GPU in each phase of the first step
//   machine  host (the name of rank 0's machine), cpu_use (the share of all its cores since the reading before), cores,
//     memory_used_bytes and memory_total_bytes (of the machine, or of the control group that limits it), and
//     process_memory_bytes (what of rank 0 is resident); at most one line each 10 s. gpus is a list with an object for
//     each GPU of that machine that a rank of this job computes on: index and name, and what the driver tells of use
//     and memory_use (shares of the last period in which a kernel ran, and in which memory was read or written),
//     memory_used_bytes, memory_total_bytes, process_memory_bytes (of the rank that computes on it), power_w,
//     power_limit_w, energy_j (since the driver was loaded), temperature_c, sm_clock_mhz, sm_clock_limit_mhz,
//     memory_clock_mhz, memory_clock_limit_mhz, throttled_by (a list of words: what keeps the clocks down), xid_error
//     (the number of the last one since the run began; 0: none), pcie_sent_bytes_per_s, pcie_received_bytes_per_s,
//     nvlink_sent_bytes_per_s, nvlink_received_bytes_per_s
//   out_of_memory  step (the step that did not fit in memory), micro_batch and accumulation (with which the run goes on)
//   checkpoints_left_device  step (the step that did not fit in memory): from this step on, checkpoints are copied to
//     the host's memory
//   no_graph  reason
//   bad_sample  reason (with the file's path): why a sample of rank 0 cannot be read; another sample takes its place
//   eval   step, epoch, and the task's metrics (observe/metrics.h) of the validation samples
//   checkpoint  step, stall_ms (how long training on rank 0 stood still for the snapshot), seconds (from the snapshot
//     until the checkpoint was committed), bytes (of all ranks)
//   checkpoint_late  step: a checkpoint was due at this step while the previous checkpoint was still being written
//   checkpoint_failed  step, reason
//   stopped  step, epoch, why: the run stopped after this step because it was asked to; when it is started again, it
//     goes on from this step
//   warning  reason
//   done   step, epoch, the last metrics, first_step_s (from the start of the command to the end of
//     the first step), samples_per_s (training alone, after the first epoch if there is a second),
//     total_s, data_wait (the share over the whole training), data_limit (what limits the loader, in words, if the
//     device waited much)
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
