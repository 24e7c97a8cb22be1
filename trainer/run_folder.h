// The folder that a run leaves behind: config.pbtxt, log.jsonl and weights.safetensors.
//
// log.jsonl holds one JSON object a line, each with "event":
//   start  version, world_size, device, samples, validation_samples, steps, precision, parameters,
//     loader_threads; of images decode (GPU or CPU)
//   step   step (optimizer steps done), epoch (from 1), loss (the step's mean over the global
//     batch), lr, samples_per_s (over all ranks, since the line before), data_wait (the share of that
//     time in which rank 0's device stood still for want of samples), loader_threads (of rank 0, now),
//     grad_norm (before clipping); in FP16 loss_scale; skipped_steps (so far, without an update) if
//     there are any
//   memory  forward_bytes, backward_bytes, exchange_bytes, update_bytes, rest_bytes: the most that
//     tensors took on rank 0's GPU in each phase of the first step
//   out_of_memory  step (that did not fit), micro_batch, accumulation: what the run goes on with
//   no_graph  reason
//   bad_sample  reason (with the file's path), of rank 0's samples that others stand for
//   eval   step, epoch, and the task's metrics (trainer/metrics.h) of the validation samples
//   done   step, epoch, the last metrics, first_step_s (from the start of the command to the end of
//     the first step), samples_per_s (training alone, after the first epoch if there is a second),
//     total_s, data_wait (over all of training), data_limit (in words, where that is much)
#pragma once

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "trainer/config.pb.h"

namespace lockstep {

class RunFolder {
 public:
  // Makes the folder and writes config.pbtxt. Throws Error (kUsage) where it exists or cannot be
  // made.
  explicit RunFolder(const config::Config& config);

  // Appends one line to log.jsonl. Throws Error (kCheckpoint) when the disk takes no more.
  void Log(const nlohmann::ordered_json& event);

  const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::ofstream log_;
};

// Where a run's final weights lie.
std::string RunWeightsPath(const std::string& run_dir);

}  // namespace lockstep
