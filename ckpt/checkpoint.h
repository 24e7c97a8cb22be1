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
// A rank that gives up leaves an empty file, part-RANK.given_up.
//
// Protocol for each rank. ATTEMPT is different for each run and the same on all ranks of a run. A run therefore never
// mistakes the files that an earlier run left behind for its own files:
//   1. mkdir RUN/checkpoints and the partial folder, unless another rank has already made them; rank 0 fsyncs RUN
//   2. write this rank's files, and fsync each of them
//   3. write part-RANK.pb with the names, sizes and checksums of these files, in the way of base/files/atomic_file.h.
//      When part-RANK.pb has its name, the rank's part is done
//   Rank 0 goes on when all parts are done:
//   4. read the part-RANK.pb of all ranks and unlink them
//   5. write manifest.pb, which lists the files of all ranks, in the way of base/files/atomic_file.h. This fsyncs the
//      folder, so all names in the folder are on the disk
//   6. rename the folder to its final name: the checkpoint is committed
//   7. fsync RUN/checkpoints: the checkpoint stays committed if the power fails
// To remove a checkpoint, Lockstep first renames it and fsyncs RUN/checkpoints. A half-removed checkpoint is therefore
// never listed, also after a power cut.
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
//   a manifest with a good checksum that says what makes no sense, as names that lead out of the folder
//     -> likewise -> Checkpoint.RefusesWhatMakesNoSense
//   a pipe, device or link in a file's place -> likewise, at once -> Checkpoint.RefusesWhatIsNoPlainFile
#pragma once

#include <cstdint>
#include <functional>
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
    std::string attempt;  // letters and digits
    int rank = 0;
    int ranks = 1;
  };

  // Throws Error (kCheckpoint), as all do.
  explicit CheckpointWriter(Options options);

  // A file of this rank's: `write` is called once with the function that appends. No two ranks may give a
  // file the same name.
  void WriteFile(const std::string& name, const std::function<void(const AppendBytes&)>& write);

  // All of this rank's files are written.
  void FinishPart();

  // This rank cannot write its part, or nobody wants it any more: gives the disk back what its files take, and
  // tells rank 0, as far as the disk lets us. Not once the part is finished.
  void GiveUp() noexcept;

  // For rank 0. The other ranks' parts come when they come.
  bool AllPartsAreFinished() const;
  bool AnyPartIsGivenUp() const;
  // They are. `facts`: the manifest without format, step, ranks and files. Returns the whole one.
  checkpoint::Manifest Commit(const checkpoint::Manifest& facts);

 private:
  std::string PartPath(int rank) const;
  std::string GivenUpPath(int rank) const;

  Options options_;
  std::string folder_;              // the partial one
  std::vector<std::string> begun_;  // this rank's files
  checkpoint::Part part_;
};

struct Checkpoint {
  std::string path;
  int64_t step = 0;
};

// Where the checkpoint of that step is, or would be.
Checkpoint CheckpointOf(const std::string& run_dir, int64_t step);

// Where whoever wants a checkpoint of a job that is training leaves an empty file; the job removes it once one
// is committed, or cannot be.
std::string RequestPath(const std::string& run_dir);

// A file that a user makes to have the run end after a step.
std::string StopPath(const std::string& run_dir);

// Those that were committed, the newest first. Throws Error (kCheckpoint) where the folder cannot be read.
std::vector<Checkpoint> ListCheckpoints(const std::string& run_dir);

// Throws Error (kCheckpoint) where it is missing, damaged, of a newer format or of another step, or makes no sense.
checkpoint::Manifest ReadManifest(const Checkpoint& checkpoint);

// Of all files that it names.
int64_t BytesOf(const checkpoint::Manifest& manifest);

// Reads the files that the manifest names, several at once: all, or one part of `parts`, which together are
// all. Throws Error (kCheckpoint) naming the first that differs.
void VerifyCheckpoint(const Checkpoint& checkpoint, const checkpoint::Manifest& manifest,
                      int part = 0, int parts = 1);

// Reads the files that VerifyCheckpoint() would, so that the system has them in its memory. Throws Error
// (kCheckpoint).
void ReadAhead(const Checkpoint& checkpoint, int part, int parts);

// Gives it a name that is none's, PATH.aside.N, for somebody to look at. Throws Error (kCheckpoint).
void SetAside(const Checkpoint& checkpoint);

// Throws Error (kCheckpoint).
void RemoveCheckpoint(const Checkpoint& checkpoint);

// Which checkpoints are kept.
struct Retention {
  size_t newest = 1;
  int64_t every_steps = 0;        // for good: those of multiples of it; 0: none
  std::string best;               // the one with the best such metric, of its own step; empty: none
  bool greater_is_better = true;  // of that metric
};

// Removes the others. One that cannot be removed keeps none of the others from it. Throws Error
// (kCheckpoint), the first one's, in the end.
void RemoveOthers(const std::string& run_dir, const Retention& retention);

// Removes what a checkpoint that came to nothing left behind. No rank may be writing it any more. Throws
// Error (kCheckpoint).
void RemovePartial(const std::string& run_dir, int64_t step, const std::string& attempt);

// Removes what runs before this one began and did not end. Nobody may be writing. Throws Error
// (kCheckpoint).
void RemoveLeftovers(const std::string& run_dir);

}  // namespace lockstep
