// Writes, commits, lists and verifies a run's checkpoints. A checkpoint is a folder that all ranks write. One rename of
// the folder commits the checkpoint.
//
// Promise: every checkpoint that ListCheckpoints() names was committed, and all its files were on the disk before that.
// If a process or the machine fails at any instant, a committed checkpoint stays whole, and a checkpoint that was not
// committed is not listed. VerifyCheckpoint() finds and names damage that happens later.
//
// Layout, below RUN/checkpoints:
//   step-000000001000/                   committed, after 1,000 optimizer steps
//     manifest.pb                        ckpt/manifest.proto: its files, with sizes and checksums (XXH3)
//     *.safetensors
//   step-000000002000.ATTEMPT.partial/   being written, or left behind
//   step-000000000500.removed/           being removed, or left behind
//
// A rank that gives up writing leaves an empty file, part-RANK.given_up, in the partial folder.
//
// Protocol for each rank. ATTEMPT is the unique name of the job: it is different each time the run is started or
// continued, and the same on all ranks. A job therefore never mistakes the files that an earlier job left behind for
// its own files:
//   1. mkdir RUN/checkpoints and the partial folder, unless another rank has already made them; rank 0 fsyncs RUN
//   2. write this rank's files, and fsync each of them
//   3. write part-RANK.pb with the names, sizes and checksums of these files, atomically (base/files/atomic_file.h).
//      When part-RANK.pb has its name, the rank's part is done
//   Rank 0 continues when all parts are done:
//   4. read the part-RANK.pb of all ranks and unlink them
//   5. write manifest.pb, which lists the files of all ranks, atomically (base/files/atomic_file.h). This fsyncs the
//      folder, so all names in the folder are on the disk
//   6. rename the folder to its final name: the checkpoint is committed
//   7. fsync RUN/checkpoints, so that the checkpoint stays committed if the power fails
// To remove a checkpoint, Lockstep first renames it and fsyncs RUN/checkpoints. A half-removed checkpoint is therefore
// never listed, even after a power cut.
//
// what can fail -> what the caller sees -> the test that shows it (ckpt/checkpoint_test.cc)
//   no permission, disk full, write error -> Error (kCheckpoint) with path and reason; what was committed
//     stays -> Checkpoint.AWriteErrorLeavesWhatWasCommitted
//   a rank cannot write its part -> AnyPartIsGivenUp() on rank 0 -> Checkpoint.WhatARankGivesUpIsRemoved
//   a rank dies -> the checkpoint is never committed; RemoveLeftovers() removes it
//     -> Checkpoint.IsNotListedBeforeAllRanksAreDone
//   the process is killed, or the power goes, between any two calls -> nothing that was committed is lost
//     -> Checkpoint.SurvivesAKillAtEachCall, .SurvivesAPowerCutAfterEachCall
//   a file missing, of another size, a bit flipped in any file or in the manifest, a manifest of a newer
//     format -> Error (kCheckpoint) that names it -> Checkpoint.NamesAllDamage,
//     .RefusesANewerFormatAndAnotherStep
//   a manifest that has a good checksum but makes no sense, for example file names that lead out of the folder
//     -> likewise -> Checkpoint.RefusesWhatMakesNoSense
//   a pipe, device or link in a file's place -> likewise, at once -> Checkpoint.RefusesWhatIsNoPlainFile
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/files/atomic_file.h"
#include "ckpt/manifest.pb.h"

namespace lockstep {

// One rank's part in writing a checkpoint.
class CheckpointWriter {
 public:
  struct Options {
    std::string run_dir;
    int64_t step = 0;     // optimizer steps done
    std::string attempt;  // the ATTEMPT above: letters and digits
    int rank = 0;
    int ranks = 1;
  };

  // Makes the partial folder. Like all functions of this class except GiveUp(), throws Error (kCheckpoint).
  explicit CheckpointWriter(Options options);

  // Writes a file of this rank. Calls `write` once, with a function that appends bytes to the file. No two ranks may
  // give a file the same name.
  void WriteFile(const std::string& name, const std::function<void(const AppendBytes&)>& write);

  // Marks this rank's part as done. Must be called after all files of this rank have been written.
  void FinishPart();

  // Removes this rank's files to free the disk, and tells rank 0 by the file part-RANK.given_up that this rank gave up.
  // Must be called if this rank cannot write its part, or if the checkpoint is not wanted any more. Ranks other than
  // rank 0 must not call it after FinishPart(). Errors of the file system are ignored.
  void GiveUp() noexcept;

  // These two functions return, without waiting, whether all ranks have called FinishPart(), and whether any rank has
  // called GiveUp(). Only rank 0 calls them.
  bool AllPartsAreFinished() const;
  bool AnyPartIsGivenUp() const;
  // Commits the checkpoint. Only rank 0 calls it, after AllPartsAreFinished() has returned true. `facts` is the
  // manifest without format, step, ranks and files. Returns the whole manifest.
  checkpoint::Manifest Commit(const checkpoint::Manifest& facts);

 private:
  std::string PartPath(int rank) const;
  std::string GivenUpPath(int rank) const;

  Options options_;
  std::string folder_;              // the partial folder
  std::vector<std::string> begun_;  // the paths of this rank's files
  checkpoint::Part part_;
};

struct Checkpoint {
  std::string path;
  int64_t step = 0;
};

// Returns the Checkpoint of `step`, with the path that this checkpoint has, or would have if it does not exist.
Checkpoint CheckpointOf(const std::string& run_dir, int64_t step);

// Returns the path at which a user, or a command, makes an empty file to ask a running job for a checkpoint. The job
// removes the file when a checkpoint is committed, or when none can be written.
std::string RequestPath(const std::string& run_dir);

// Returns the path of the file that a user, or `lockstep stop`, makes to end the run after the current or the next
// step.
std::string StopPath(const std::string& run_dir);

// Returns the committed checkpoints, the newest first. Throws Error (kCheckpoint) if the folder cannot be read.
std::vector<Checkpoint> ListCheckpoints(const std::string& run_dir);

// Returns the checkpoint with the best value of the run's best_metric (ckpt/manifest.proto), or nothing if there is
// none. Compares only checkpoints that have a readable manifest and were evaluated at their own step. Among equal
// values the first checkpoint wins (base/best_so_far.h). Throws Error (kCheckpoint) if the folder cannot be read.
std::optional<Checkpoint> BestCheckpoint(const std::string& run_dir);

// The newest value of Manifest::metric_definitions.
inline constexpr int kMetricDefinitions = 2;

// Reads the manifest of a checkpoint. Metrics in it have today's names: where an older program saved the share of right
// labels as `accuracy`, the manifest says `label_accuracy`. Throws Error (kCheckpoint) if the manifest is missing,
// damaged, of a newer format or of another step, or if its content makes no sense.
checkpoint::Manifest ReadManifest(const Checkpoint& checkpoint);

// Returns the total size of the files that the manifest names.
int64_t BytesOf(const checkpoint::Manifest& manifest);

// Reads the files that the manifest names, several at once, and compares them with the manifest. With `parts` greater
// than 1, reads only part number `part` of the files; the parts 0 to parts - 1 together are all files. Throws Error
// (kCheckpoint) that names the first file that differs.
void VerifyCheckpoint(const Checkpoint& checkpoint, const checkpoint::Manifest& manifest,
                      int part = 0, int parts = 1);

// Reads the files that VerifyCheckpoint() would read, so that they are in the system's page cache. Throws Error
// (kCheckpoint).
void ReadAhead(const Checkpoint& checkpoint, int part, int parts);

// Renames the checkpoint's folder PATH to PATH.aside.N with a free number N, so that the checkpoint is not listed any
// more but a user can examine it. Throws Error (kCheckpoint).
void SetAside(const Checkpoint& checkpoint);

// Removes a committed checkpoint. Throws Error (kCheckpoint).
void RemoveCheckpoint(const Checkpoint& checkpoint);

// The choice of checkpoints that RemoveOthers() keeps.
struct Retention {
  size_t newest = 1;
  // Checkpoints whose step is a multiple of this number are always kept; 0: this rule keeps none.
  int64_t every_steps = 0;
  // The name of a metric. Among the checkpoints that were evaluated at their own step, the one with the best value of
  // this metric is kept. Empty: this rule keeps none.
  std::string best;
  bool greater_is_better = true;  // whether a greater value of the metric `best` is better
};

// Removes the checkpoints that `retention` does not keep. If a checkpoint cannot be removed or its manifest cannot be
// read, continues with the other checkpoints and finally throws the first Error (kCheckpoint).
void RemoveOthers(const std::string& run_dir, const Retention& retention);

// Removes the partial folder of a checkpoint that was given up. No rank may be writing to it any more. Throws Error
// (kCheckpoint).
void RemovePartial(const std::string& run_dir, int64_t step, const std::string& attempt);

// Removes the partial folders, and the folders of half-removed checkpoints, that earlier runs left behind. No process
// may be writing to these folders. Throws Error (kCheckpoint).
void RemoveLeftovers(const std::string& run_dir);

}  // namespace lockstep
