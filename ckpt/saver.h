// Saver: writes checkpoints while training goes on.
//
// Promise: Save() takes a snapshot and returns. A separate thread writes the snapshot to the disk. On rank 0 the thread
// commits the checkpoint when every rank's part is done (ckpt/checkpoint.h) and Release() has been called for the
// checkpoint's step. The thread then removes old checkpoints that are not to be kept. A checkpoint that fails does not
// harm earlier checkpoints. A rank that gives up removes the files that it has written for the failed checkpoint at
// once. Rank 0 removes the folder of the failed checkpoint before it writes the next checkpoint.
//
// Each rank has one Saver. All ranks must call Save() for the same steps, and only when no rank's Saver is busy.
//
// A checkpoint holds:
//   model.safetensors           the model's parameters and buffers; rank 0 writes them
//   state-RANK.safetensors      the other tensors (ckpt/state_tree.h); all ranks write about the same number of bytes
//   samples.safetensors         hashes of the samples that the run has read (data/dataset/sample_record.h), if it reads
//                               them from files while it trains; rank 0 writes them
//   manifest.pb                 everything else (ckpt/manifest.proto), and the checksums of these files
//
// what can fail -> what the caller sees -> the test that shows it (ckpt/saver_test.cc)
//   a file cannot be written, or memory for the snapshot is lacking -> an outcome with the reason; rank 0 gives up
//     -> SaverTest.SaysWhatFailed, .SaysThatMemoryWasLacking, .RankZeroGivesUpWithoutAnothersPart
//   a rank cannot even tell that it failed -> rank 0 waits for Abandon()
//     -> SaverTest.TheNextOneFollowsAnAbandonedOne
//   the process ends while it writes -> no checkpoint -> SaverTest.GivesUpWhenItIsDestroyed
//   a manifest that lacks a file -> Error (kCheckpoint) naming it -> SaverTest.RequiresTheFilesOfAllRanks
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/tensor/named_tensor.h"
#include "ckpt/checkpoint.h"
#include "ckpt/snapshot.h"
#include "ckpt/state_tree.h"

namespace lockstep {

class Saver {
 public:
  struct Options {
    std::string run_dir;
    // The ATTEMPT of ckpt/checkpoint.h, in letters and digits: the unique name of the job.
    std::string attempt;
    int rank = 0;
    int ranks = 1;
    Retention retention;            // which of the checkpoints in the run folder are kept
    double bytes_per_s = 0;         // how fast this rank may write; 0: no limit
    checkpoint::Manifest manifest;  // the fields that are the same in all checkpoints
    // The metadata of the model's file, beside its format.
    std::map<std::string, std::string> model_metadata{};
  };

  // The result of writing a checkpoint, on this rank.
  struct Outcome {
    int64_t step = 0;
    double snapshot_s = 0;  // the time for which training waited for the snapshot
    double seconds = 0;     // on rank 0: the time from the snapshot to the commit
    int64_t bytes = 0;      // on rank 0: the size of all ranks' files
    // The error message. Empty if this rank's part was written and, on rank 0, the checkpoint was committed.
    std::string error;
    bool given_up = false;  // whether this rank gave up without an error of its own
    std::string warning;    // why files of an older checkpoint could not be removed
  };

  Saver(at::Device device, Options options);
  // Gives up the checkpoint that is being written, if there is one.
  ~Saver();
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;

  // Returns whether the last checkpoint is still being written, or, on rank 0, is not committed yet.
  bool busy() const;

  // Saves this rank's state after `step` optimizer steps. The Saver must not be busy. `facts` are the values of the
  // manifest that belong to this step. The state includes the results of all work that is already enqueued on the
  // current stream.
  // `samples` are the tensors of samples.safetensors.
  void Save(int64_t step, const std::vector<NamedTensor>& model, const StateTree& state,
            const std::vector<NamedTensor>& samples, const checkpoint::Manifest& facts);

  // Returns whether the last checkpoint failed and TakeOutcome() has not returned its outcome yet.
  bool failed() const;

  // Allows rank 0 to commit checkpoints of up to `step` steps. The host must have checked the results of these steps
  // before. Rank 0 does not commit a checkpoint before Release() was called for its step or a later step. On other
  // ranks the call has no effect.
  void Release(int64_t step);

  // holds_device_memory() returns whether the snapshot lies in the device's memory. LeaveDeviceMemory() frees that
  // memory; later snapshots lie in the host's memory. The Saver must not be busy.
  bool holds_device_memory() const { return snapshot_.holds_device_memory(); }
  void LeaveDeviceMemory() { snapshot_.LeaveDeviceMemory(); }

  // Returns the tensors of the snapshot, for measuring their memory. Their values must not be changed, because a thread
  // may be writing them to the disk.
  const std::vector<NamedTensor>& memories() const { return snapshot_.tensors(); }

  // Waits until the Saver is not busy. On rank 0, Release() must have been called for the last checkpoint's step.
  void Wait();

  // Gives up the checkpoint that is being written. The caller uses Abandon() if another rank cannot write its part.
  // Returns at once.
  void Abandon();

  // On rank 0, removes the files that all ranks have written for a failed checkpoint. On other ranks the call has no
  // effect. No rank may be busy. Throws Error (kCheckpoint).
  void RemoveRemains();

  // Returns the outcome of the last checkpoint, or nothing if it is not known yet. Each outcome is returned only once.
  std::optional<Outcome> TakeOutcome();

 private:
  void Run(const std::stop_token& stop);
  Outcome Write();
  void WriteFiles(CheckpointWriter& writer);
  template <typename Act>
  static void OrWarn(Outcome& outcome, const Act& act);
  bool released() const;
  bool Pause(std::chrono::steady_clock::time_point until);
  void Pace();

  Options options_;
  at::Device device_;
  StateSnapshot snapshot_;
  // On rank 0: the first `model_tensors_` tensors of the snapshot belong to the model.
  size_t model_tensors_ = 0;
  size_t samples_tensors_ =
      0;  // on rank 0: as many tensors at the snapshot's end are those of the samples
  checkpoint::Manifest manifest_;
  int64_t step_ = 0;
  int64_t written_ = 0;  // how many bytes of the checkpoint were written
  std::chrono::steady_clock::time_point begun_;
  std::exception_ptr not_taken_;  // the exception, if no snapshot could be taken
  // On rank 0: the step of a failed checkpoint whose files must be removed.
  std::optional<int64_t> given_up_;
  double taken_s_ = 0;

  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  int64_t released_ = -1;  // this and the next three members are guarded by mutex_
  bool busy_ = false;
  bool abandoned_ = false;
  std::optional<Outcome> outcome_;
  std::jthread thread_;  // the last member, so that it ends before the members that it uses
};

// Throws Error (kCheckpoint) if the manifest does not name the file of the model and one file for each rank.
void RequireFiles(const Checkpoint& checkpoint, const checkpoint::Manifest& manifest);

// Returns the paths of the files of a committed checkpoint from which Restore() (ckpt/state_tree.h) reads the state.
std::vector<std::string> StateFiles(const Checkpoint& checkpoint,
                                    const checkpoint::Manifest& manifest);
std::string ModelFile(const Checkpoint& checkpoint);
// Returns the path of samples.safetensors; empty if the checkpoint has none.
std::string SamplesFile(const Checkpoint& checkpoint, const checkpoint::Manifest& manifest);

}  // namespace lockstep
