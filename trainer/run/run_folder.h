// The folder of a run: config.pbtxt, log.jsonl, checkpoints and weights.safetensors.
//
// log.jsonl holds one JSON object in each line. The field "event" names the kind of event, and "time" is when the line
// was written, in seconds of Unix time. The other fields are:
//   start  restarts (how often --restarts has started the job again), version, world_size, device, samples,
//     validation_samples, steps, precision, parameters, loader_threads; for images also decode (GPU or CPU)
//   resume  step (of the checkpoint from which the run goes on), checkpoint (its path), ranks (the number of ranks that
//     wrote the checkpoint); if the checkpoint belongs to another run, also differences (of the two configs). Lines
//     before the resume line may be about later steps than the checkpoint's: an earlier process made those steps, and
//     the run makes them again
//   step   step (optimizer steps done), epoch (from 1), loss (the step's mean over the global batch), lr, samples_per_s
//     (of all ranks, since the previous step line), data_wait (the share of that time in which rank 0's device waited
//     for samples), loader_threads (of rank 0, at this moment), grad_norm (before clipping); from the third step after
//     each start on, also left_s (seconds until the run's end, evaluations and checkpoints included); in FP16 also
//     loss_scale; if there were steps without an update, also skipped_steps (their number so far)
//   memory  step (in which it was measured), device (cuda or cpu), peak_bytes (the most that tensors took at a time on
//     rank 0's device), and on a GPU reserved_bytes (the memory that the allocator holds) and device_bytes (the GPU's
//     memory). owners is an object with the bytes of each owner (base/memory_scope.h) at the peak; these bytes add up
//     to peak_bytes. phases has the peak bytes of each phase (forward, backward, exchange, update, rest; evaluation, if
//     the peak was in an evaluation), and blocks has the bytes of activations at the peak by module. The line comes
//     after the second step of a process, whenever the peak has risen by more than 2 %, and after the second step that
//     follows a step that did not fit in memory; each memory line replaces the earlier memory lines. If the peak was
//     predicted before training, the line also has foretold_bytes (the predicted peak)
//   memory_foretold  the predicted values of a memory line's fields. The line comes before the first step on a GPU, if
//     the memory can be predicted (trainer/run/foretell.h)
//   kernels  after the first step of a model whose kernels are generated for the sizes of its samples: compiled (how many
//     rank 0 compiled), kept (how many it found in the cache folder), compiling_s (the seconds of all compilations, added
//     up), waited_s (how long the step waited for them)
//   micro_batch  step (the first step to which the values apply), micro_batch (the samples of a rank's micro-batch),
//     accumulation (the micro-batches of a step) and why: `micro_batch: AUTO` has chosen these values
//   machine  host (the name of rank 0's machine), cpu_use (the fraction of all the machine's cores that was busy since
//     the previous reading), cores, memory_used_bytes and memory_total_bytes (of the machine, or of the control group
//     that limits it), and process_memory_bytes (the resident memory of rank 0's process); there is at most one such
//     line in 10 s. gpus is a list with an object for each GPU of that machine on which a rank of this job computes.
//     The object has index and name, and those of these values that the driver reports: use and memory_use (the shares
//     of the driver's last sampling period in which a kernel ran, and in which the GPU's memory was read or written),
//     memory_used_bytes, memory_total_bytes, process_memory_bytes (of the rank that computes on the GPU), power_w,
//     power_limit_w, energy_j (since the driver was loaded), temperature_c, sm_clock_mhz, sm_clock_limit_mhz,
//     memory_clock_mhz, memory_clock_limit_mhz, throttled_by (a list of words that say what lowers the clocks),
//     xid_error (the number of the last error that the driver reported as an Xid since the run began; 0: none),
//     pcie_sent_bytes_per_s, pcie_received_bytes_per_s, nvlink_sent_bytes_per_s, nvlink_received_bytes_per_s
//   seconds  step; steps (how many steps this line is about); wall_s (the seconds since the first of these steps
//     began). wall_s is the sum of ideal_s (the seconds that the steps would take at the speed that this run can reach)
//     and of the fields of lost_s (the seconds lost to each cause: reading, decoding, copying, launching,
//     communication, slow_rank, cores, evaluation, checkpoints, memory, restarts, throttling, other). verdict says in
//     words which cause loses the most time, and remedy says how to reduce this loss; both are empty if no cause loses
//     enough time to be named. findings is a list of objects with rule, words and remedy (observe/verdict/rules.h). If
//     these values are known, the line also has flops_share (the FLOP/s of an ideal step as a fraction of the GPU's
//     peak), busy_share (the fraction of the time in which kernels ran on the GPUs) and joules_per_sample. The line
//     comes every five seconds, and when the run is done or stops
//   out_of_memory  step (the step that did not fit in memory), micro_batch and accumulation (the values with which the
//     run continues); on a GPU also rank (the rank on which an allocation failed), requested_bytes (the size of this
//     allocation), allocated_bytes, reserved_bytes, free_bytes (reserved but free), usable_bytes (the part of
//     free_bytes in blocks for the same stream and size class), largest_usable_bytes (the largest of these blocks),
//     device_free_bytes (the GPU's memory that no process has taken), fragmented (whether the allocation would have
//     fitted if the free memory were one block)
//   checkpoints_left_device  step (the step that did not fit in memory): from this step on, checkpoints are copied to
//     the host's memory
//   graphs_gave_way  step (the step that did not fit in memory beside the CUDA graphs of other batch shapes): the
//     memory of these graphs is released, the step is made again, and the graphs are captured again later
//   no_graph  reason (why steps run without a CUDA graph)
//   bad_sample  reason (with the file's path): why a sample of rank 0 cannot be read; another sample takes its place
//   epoch  step, epoch, train_loss (the mean over the samples of the epoch's steps whose loss is finite), seconds and
//     samples_per_s (of training, without the first step of each process). If a run continues or ends within an epoch,
//     the values are about only those steps of the epoch that this process made
//   eval   step, epoch, and the task's metrics (observe/metrics.h) of the validation samples, each with val_ before its
//     name: val_loss, val_accuracy, ...
//   checkpoint  step, stall_ms (the milliseconds for which training on rank 0 stood still for the snapshot), seconds
//     (from the snapshot until the checkpoint was committed), bytes (of all ranks)
//   checkpoint_late  step: a checkpoint was due at this step while the previous checkpoint was still being written
//   checkpoint_failed  step, reason
//   stopped  step, epoch, why: the run stopped after this step because it was asked to; when it is started again, it
//     goes on from this step
//   profile  step (the first of the profiled steps), steps (how many), folder, slower (sentences: which kernels have
//     become slower since the run's first profile)
//   warning  reason
//   failed  step (the step during which the error occurred), status (the exit status of the process), reason: the run
//     ended with an error of rank 0 or of all ranks. If a process is killed, or if another rank fails, the log ends
//     without such a line
//   done   step, epoch, the last metrics (val_loss, ...), first_step_s (from the start of the command to the end of
//     the first step), samples_per_s (training alone, after the first epoch if there is a second),
//     total_s, data_wait (the share over the whole training), early (why the run ended early, if it did)
//
// what can fail -> what the caller sees -> the test that shows it (tests/resume_test.py)
//   the folder is not a run folder, or it belongs to a finished run without checkpoints -> Error (kUsage)
//     -> test_what_is_no_run_is_left_alone
//   another process trains in the folder -> Error (kUsage) -> test_two_runs_at_once
//   the newest checkpoint is damaged -> a warning, and the checkpoint before it is used
//     -> test_damage_is_named_and_the_one_before_taken
//   all checkpoints are damaged -> Error (kCheckpoint) -> test_all_damaged
//   the config differs from the run's -> Error (kUsage) with the fields that differ -> test_another_config_is_refused
//   the folder is removed while the run trains -> the folder is made again, the state is saved there, and the run ends
//     -> tests/stop_test.py, test_a_folder_that_is_removed
//   the folder is removed, and another job trains in a new folder of that name -> Error (kCheckpoint)
//     -> tests/stop_test.py, test_a_folder_that_is_replaced
//   the log cannot be written -> one warning; the lines are kept and written when writing is possible again
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

// Returns the path of the file that lists the samples of the step in which an anomaly ended the run. The file is
// written if the config has anomaly { policy: STOP_AND_SAVE }.
std::string AnomalyPath(const std::string& run_dir);

class RunFolder {
 public:
  // Makes the folder config.run_dir, or opens the existing one, and locks it for `job`, the unique name of this job. If
  // `fresh` is set, an existing folder is first renamed, so that the run begins in a new one. Throws Error (kUsage,
  // kCheckpoint).
  RunFolder(const config::Config& config, const std::string& job, bool fresh);

  // Returns the newest checkpoint that Reject() has not rejected, from which the run continues; nothing if there is
  // none.
  std::optional<Checkpoint> newest() const;

  // Rejects the checkpoint newest(), because it is damaged. `why` becomes a warning.
  void Reject(const std::string& why);

  // Checks that the run may continue from newest(), or begin at step 0 if there is no checkpoint. `differences` are the
  // differences between the checkpoint's config and this run's config. Throws Error (kUsage) if there are differences,
  // or if the run has ended, and Error (kCheckpoint) if all checkpoints were rejected.
  void Accept(const std::vector<std::string>& differences) const;

  // Begins or continues the run: sets rejected checkpoints aside, writes config.pbtxt, and opens the log. Call it once,
  // before the first Log(). Throws Error (kCheckpoint).
  void Begin(const config::Config& config);

  // Returns warnings for the user about the state in which the folder was found.
  const std::vector<std::string>& warnings() const { return warnings_; }

  // Appends `event` as one line to log.jsonl. If the line cannot be written, warns the user and keeps the line until a
  // later call can write it.
  void Log(const nlohmann::ordered_json& event);

  // CheckpointIsRequested() returns whether a user asks for a checkpoint, that is, whether the file RequestPath()
  // (ckpt/checkpoint.h) exists. AnswerRequest() removes this file. Call AnswerRequest() when the checkpoint was made,
  // or cannot be made.
  bool CheckpointIsRequested() const;
  void AnswerRequest();

  // WhyUserStops() returns in words what the user has done to end the run: made the file STOP (StopPath()), removed the
  // folder, or started another job in the folder. WhyUserStops() returns an empty string if the user has done none of
  // these things. AnswerStop() removes the file STOP. Call AnswerStop() when the run has ended.
  std::string WhyUserStops() const;
  void AnswerStop();

  // Makes the folder again if it was removed. Call it before the run's last state is written. Throws Error
  // (kCheckpoint) without changing the folder if another job trains in it.
  void RequireOwn(const config::Config& config);

  const std::string& path() const { return path_; }

 private:
  bool IsRemoved() const;

  std::string path_;
  std::string job_;
  std::optional<RunLock> lock_;
  std::vector<Checkpoint> checkpoints_;  // the folder's checkpoints, the newest first
  size_t damaged_ = 0;  // how many of checkpoints_ Reject() has rejected, from the newest on
  std::vector<std::string> warnings_;
  std::optional<OutputFile> log_;
  int64_t log_bytes_ = 0;
  std::string unwritten_;  // lines of the log that could not be written yet
};

}  // namespace lockstep
