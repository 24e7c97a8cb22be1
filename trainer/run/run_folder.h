// The folder of a run: config.pbtxt, log.jsonl, checkpoints and weights.safetensors.
//
// log.jsonl holds one JSON object in each line. The field "event" names the kind of event, and "time" is when the line
// was written, in seconds of Unix time. The other fields are:
//   start  restarts (how often --restarts has started the job again), version, world_size, device, samples,
//     validation_samples, steps, precision, parameters, loader_threads; for images also decode (GPU or CPU)
//   resume  step (of the checkpoint from which the run goes on), checkpoint (its path), ranks (the number of ranks that
//     wrote the checkpoint); if the checkpoint belongs to another run, also differences (of the two configs). Lines
//     before this line may be of later steps than the checkpoint: the process that wrote them has ended, and the run
//     makes these steps again
//   step   step (optimizer steps done), epoch (from 1), loss (the step's mean over the global batch), lr, samples_per_s
//     (of all ranks, since the previous step line), data_wait (the share of that time in which rank 0's device waited
//     for samples), loader_threads (of rank 0, at this moment), grad_norm (before clipping); from the third step of a
//     start on left_s (seconds until the run's end, evaluations and checkpoints included); in FP16 also loss_scale; if
//     there were steps without an update, also skipped_steps (their number so far)
//   memory  step (in which it was measured), device (cuda or cpu), peak_bytes (the most that tensors took at a time on
//     rank 0's device), and on a GPU reserved_bytes (the memory that the allocator holds) and device_bytes (the GPU's
//     memory). owners is an object with the bytes of each of base/memory_scope.h's owners at the peak; they add up to
//     it. phases has the peak of each phase (forward, backward, exchange, update, rest; evaluation, if the peak was
//     there), and blocks has the bytes of activations at the peak by module. The line comes after the second step of a
//     process, and when the peak rises by more than 2 %, and anew after a step that did not fit in memory; the last
//     line is the valid one
//   machine  host (the name of rank 0's machine), cpu_use (the fraction of all its cores that was busy since the
//     previous reading), cores, memory_used_bytes and memory_total_bytes (of the machine, or of the control group that
//     limits it), and process_memory_bytes (the resident memory of rank 0's process); at most one line each 10 s. gpus
//     is a list with an object for each GPU of that machine that a rank of this job computes on: index and name, and as
//     far as the driver reports them use and memory_use (shares of the last period in which a kernel ran, and in which
//     memory was read or written), memory_used_bytes, memory_total_bytes, process_memory_bytes (of the rank that
//     computes on it), power_w, power_limit_w, energy_j (since the driver was loaded), temperature_c, sm_clock_mhz,
//     sm_clock_limit_mhz, memory_clock_mhz, memory_clock_limit_mhz, throttled_by (a list of words that say what lowers
//     the clocks), xid_error (the number of the last Xid error since the run began; 0: none), pcie_sent_bytes_per_s,
//     pcie_received_bytes_per_s, nvlink_sent_bytes_per_s, nvlink_received_bytes_per_s
//   seconds  step; steps (how many steps this line is about); wall_s (the seconds since the first of these steps
//     began). wall_s is the sum of ideal_s (the seconds that the steps would take at the speed that this run can reach)
//     and of the fields of lost_s (the seconds lost to each cause: reading, decoding, copying, launching,
//     communication, slow_rank, cores, evaluation, checkpoints, memory, restarts, throttling, other). verdict says in
//     words which cause loses the most time, and remedy says how to reduce this loss; both are empty if no cause loses
//     enough. findings is a list of objects with rule, words and remedy (observe/verdict/rules.h). If they are known,
//     there are also flops_share (the FLOP/s of an ideal step as a fraction of the GPU's peak), busy_share (the
//     fraction of the time in which kernels ran on the GPUs) and joules_per_sample. The line comes every five seconds,
//     and when the run is done or stops
//   out_of_memory  step (the step that did not fit in memory), micro_batch and accumulation (with which the run
//     continues); on a GPU also rank (on which an allocation failed), requested_bytes (the size of this allocation),
//     allocated_bytes, reserved_bytes, free_bytes (reserved but free), usable_bytes (the part of free_bytes in blocks
//     for the same stream and size class), largest_usable_bytes (the largest of these blocks), device_free_bytes (not
//     reserved), fragmented (whether the free memory would have sufficed if it were one block)
//   checkpoints_left_device  step (the step that did not fit in memory): from this step on, checkpoints are copied to
//     the host's memory
//   graphs_gave_way  step (the step that did not fit in memory beside the CUDA graphs of other batch shapes): the step
//     is made again without these graphs, and they are captured again later
//   no_graph  reason (why steps run without a CUDA graph)
//   bad_sample  reason (with the file's path): why a sample of rank 0 cannot be read; another sample takes its place
//   epoch  step, epoch, train_loss (the mean over the samples of the epoch's steps whose loss is finite), seconds and
//     samples_per_s (of training, without the first step of a start). If a run continues or ends within an epoch, the
//     values are those of the steps that this process made in the epoch
//   eval   step, epoch, and the task's metrics (observe/metrics.h) of the validation samples, each with val_ before its
//     name: val_loss, val_accuracy, ...
//   checkpoint  step, stall_ms (how long training on rank 0 stood still for the snapshot), seconds (from the snapshot
//     until the checkpoint was committed), bytes (of all ranks)
//   checkpoint_late  step: a checkpoint was due at this step while the previous checkpoint was still being written
//   checkpoint_failed  step, reason
//   stopped  step, epoch, why: the run stopped after this step because it was asked to; when it is started again, it
//     goes on from this step
//   profile  step (the first of the profiled steps), steps (how many), folder, slower (sentences: which kernels have
//     become slower since the run's first profile)
//   warning  reason
//   failed  step (during which the error occurred), status (the exit status of the process), reason: the run ended with
//     an error of rank 0 or of all ranks. If a process is killed, or if another rank fails, the log ends without such a
//     line
//   done   step, epoch, the last metrics (val_loss, ...), first_step_s (from the start of the command to the end of
//     the first step), samples_per_s (training alone, after the first epoch if there is a second),
//     total_s, data_wait (the share over the whole training), early (why the run ended early, if it did)
//
// what can fail -> what the caller sees -> the test that shows it (tests/resume_test.py)
//   the folder is not that of a run, or that of a finished run without checkpoints -> Error (kUsage)
//     -> test_what_is_no_run_is_left_alone
//   another process trains in it -> Error (kUsage) -> test_two_runs_at_once
//   the newest checkpoint is damaged -> a warning, and the one before is taken
//     -> test_damage_is_named_and_the_one_before_taken
//   all checkpoints are damaged -> Error (kCheckpoint) -> test_all_damaged
//   the config differs from the run's -> Error (kUsage) with the fields that differ -> test_another_config_is_refused
//   the folder is removed while the run trains -> it is made again, the state is saved there, and the run ends
//     -> tests/stop_test.py, test_a_folder_that_is_removed
//   the folder is removed, and another job trains in a new one of that name -> Error (kCheckpoint)
//     -> tests/stop_test.py, test_a_folder_that_is_replaced
//   the log cannot be written -> one warning; its lines are written when that is possible again
//     -> tests/checkpoint_fault_test.py, test_a_log_that_cannot_be_written
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/files/output_file.h"
#include "ckpt/checkpoint.h"
#include "ckpt/run_lock.h"
#include "config/schema/config.pb.h"

namespace lockstep {

// Returns the path of the file that names the samples of the step in which an anomaly ended the run. It is written with
// anomaly { policy: STOP_AND_SAVE }.
std::string AnomalyPath(const std::string& run_dir);

class RunFolder {
 public:
  // Makes the folder of config.run_dir, or opens an existing one, and locks it for `job`, the name of this job, which
  // no other job may have. With `fresh`, gives an existing folder another name first. Throws Error (kUsage,
  // kCheckpoint).
  RunFolder(const config::Config& config, const std::string& job, bool fresh);

  // Returns the checkpoint from which the run continues: the newest one that was not rejected; nothing if there is
  // none.
  std::optional<Checkpoint> newest() const;

  // Says that the newest() checkpoint is damaged.
  void Reject(const std::string& why);

  // Says that the newest() checkpoint is whole, or that there is none and the run begins. `differences` are the
  // differences between the checkpoint's config and this run's. Throws Error (kUsage, kCheckpoint) if the run must not
  // continue from there.
  void Accept(const std::vector<std::string>& differences) const;

  // Begins or continues the run: writes config.pbtxt, sets damaged checkpoints aside, and opens the log. Call it once,
  // before the functions below. Throws Error (kCheckpoint).
  void Begin(const config::Config& config);

  // Warnings for the user about the state in which the folder was found.
  const std::vector<std::string>& warnings() const { return warnings_; }

  // Appends one line to log.jsonl. If the disk does not take the line, it is written together with a later line.
  void Log(const nlohmann::ordered_json& event);

  // CheckpointIsRequested() returns whether somebody asks for a checkpoint (RequestPath() in ckpt/checkpoint.h).
  // AnswerRequest() removes the request when the checkpoint was made, or cannot be made.
  bool CheckpointIsRequested() const;
  void AnswerRequest();

  // WhyUserStops() returns in words what the user has done to end the run: made the file STOP (StopPath()), removed the
  // folder, or started another job in it; empty if nothing. AnswerStop() removes the file STOP when the run has ended.
  std::string WhyUserStops() const;
  void AnswerStop();

  // Call it before the run's last state is written. If the folder was removed, makes it again. Throws Error
  // (kCheckpoint) if the folder belongs to another job now; that folder is not changed.
  void RequireOwn(const config::Config& config);

  const std::string& path() const { return path_; }

 private:
  bool IsRemoved() const;

  std::string path_;
  std::string job_;
  std::optional<RunLock> lock_;
  std::vector<Checkpoint> checkpoints_;  // the newest first
  size_t damaged_ = 0;                   // how many of the newest ones are damaged
  std::vector<std::string> warnings_;
  std::optional<OutputFile> log_;
  int64_t log_bytes_ = 0;
  std::string unwritten_;  // text of the log that the disk has not taken yet
};

}  // namespace lockstep
