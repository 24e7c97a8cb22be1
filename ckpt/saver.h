// Saver: writes checkpoints while training goes on.
//
// Promise: Save() takes a snapshot and returns. A separate thread writes the snapshot to the disk. On rank 0 the thread
// commits the checkpoint when every rank's part is done (ckpt/checkpoint.h) and Release() says that the state is sound.
// The thread then removes old checkpoints that are not to be kept. A checkpoint that fails does not harm earlier
// checkpoints. Each rank removes its part of a failed checkpoint at once, and the other remains before it writes the
// next checkpoint.
//
// Each rank has one Saver. All ranks must call Save() for the same steps, and only when no rank's Saver is busy.
//
// What a checkpoint holds:
//   model.safetensors           the model's parameters and buffers; rank 0 writes them
//   state-RANK.safetensors      the other tensors (ckpt/state_tree.h); each rank writes about as much
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
    std::string attempt;  // letters and digits, the same on all ranks and no other run's
    int rank = 0;
    int ranks = 1;
    Retention retention;            // of this run's checkpoints and earlier ones
    double bytes_per_s = 0;         // that this rank writes at most; 0: what the disk can
    checkpoint::Manifest manifest;  // what is the same in all of them
  };

  // What has become of a checkpoint, as far as this rank has to do with it.
  struct Outcome {
    int64_t step = 0;
    double snapshot_s = 0;  // that training stood still for
    double seconds = 0;     // on rank 0, from then until it was committed
    int64_t bytes = 0;      // on rank 0: of all ranks
    std::string error;      // empty: it is written; on rank 0 committed, too
    bool given_up = false;  // where there is an error: it was another rank's
    std::string warning;    // committed, but an old one could not be removed
  };

  Saver(at::Device device, Options options);
  // Gives up what is not written.
  ~Saver();
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;

  // Whether the last one is still being written, or, on rank 0, not committed.
  bool busy() const;

  // The state after `step` optimizer steps, of this rank, which is not busy. `facts`: of the manifest, what
  // is of this step. What is queued on the current stream belongs to it.
  void Save(int64_t step, const std::vector<NamedTensor>& model, const StateTree& state,
            const checkpoint::Manifest& facts);

  // Whether the last one came to nothing, and TakeOutcome() has not said so yet.
  bool failed() const;

  // The states after the first `step` steps are ones to go on from: what the device found out about them is
  // known. For rank 0, where nothing is committed before; others may call it, too.
  void Release(int64_t step);

  // Whether the snapshot lies in the device's memory, and: from now on it does not. It is not busy.
  bool holds_device_memory() const { return snapshot_.holds_device_memory(); }
  void LeaveDeviceMemory() { snapshot_.LeaveDeviceMemory(); }

  // Returns once it is not busy. On rank 0: the step was released.
  void Wait();

  // What is not written is to be given up: another rank cannot write its part. Returns at once.
  void Abandon();

  // Of one that came to nothing: what all ranks have written. No rank is busy. Throws Error (kCheckpoint).
  void RemoveRemains();

  // Of the last one, once it is known; given out once.
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
  size_t model_tensors_ = 0;  // the snapshot's first, on rank 0
  checkpoint::Manifest manifest_;
  int64_t step_ = 0;
  int64_t written_ = 0;  // bytes of it
  std::chrono::steady_clock::time_point begun_;
  std::exception_ptr not_taken_;     // why there is no snapshot of it
  std::optional<int64_t> given_up_;  // on rank 0: the step whose remains are to be removed
  double taken_s_ = 0;

  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  int64_t released_ = -1;  // these four: guarded by mutex_
  bool busy_ = false;
  bool abandoned_ = false;
  std::optional<Outcome> outcome_;
  std::jthread thread_;  // last, so that it ends before what it works on
};

// Throws Error (kCheckpoint) where the manifest does not name the model's file and each rank's.
void RequireFiles(const Checkpoint& checkpoint, const checkpoint::Manifest& manifest);

// The files of a committed checkpoint that Restore() takes.
std::vector<std::string> StateFiles(const Checkpoint& checkpoint,
                                    const checkpoint::Manifest& manifest);
std::string ModelFile(const Checkpoint& checkpoint);

}  // namespace lockstep
