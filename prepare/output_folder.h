// OutputFolder: the folder DST.partial, in which a command makes the files of a result named DST. When all files are on
// the disk, the result gets its name.
//
// Promise: if a run is killed at any instant, or the power fails, the same command continues where the run stopped.
// Each file that was done is kept. A result does not have its name before all of it is on the disk. Two runs never
// work on one result.
//
// A job is the set of things on which the result depends (sources, options), one line for each.
//
// Protocol, for a result named DST:
//   1. If the result is already there, the run ends with an error. The exception is a DST.partial that says that the
//      commit of this result was interrupted: the run then finishes that commit (step 5).
//   2. The run makes DST.partial and locks it with flock. A second run gets no lock and ends with an error. The system
//      releases the lock when the process ends. A run may get the lock of a DST.partial that another run has just
//      removed; it then begins again at step 1. A run that has the lock repeats the check of step 1, because another
//      run may have made the result in the meantime.
//   3. DST.partial/job holds the lines of the job. If this file is there and its lines differ from the run's, the run
//      ends with an error. DST.partial/position holds the text that the run saved with WritePosition.
//   4. The run writes files below DST.partial/files:
//        a. write NAME.tmp
//        b. syncfs: the content is on the disk
//        c. rename NAME.tmp to NAME: a file named NAME is done
//      The run does a and c for each file, and b once for kFilesOfABatch files. On the two-core machine of the README,
//      2,000 files of 30 KB took 0.5 ms each with an fsync for each file. With a syncfs for 64 files they took 0.18 ms
//      each, and 0.08 ms of this is the writing. If the run is killed, at most the last 64 files of each thread are
//      lost.
//   5. Commit() gets a list of moves. A move says which final name a file or folder gets:
//        a. syncfs
//        b. write the moves to DST.partial/commit, as in step 4. The file holds the final names without a folder,
//           because all results lie in DST's folder. A run may therefore continue from another working directory
//        c. syncfs: the file commit is on the disk before any result has its final name
//        d. rename everything in DST.partial/files that does not have its final name yet; nothing is replaced
//        e. syncfs: the final names are on the disk
//        f. rmdir files; unlink position, job and commit; rmdir DST.partial
//      A run that finds DST.partial/commit continues at d. (If a run is killed right before it removes DST.partial,
//      everything is done. The next run then ends with the error that the result is already there.)
//
// Invariants: DST.partial lies beside DST, on the same file system. A file below DST.partial/files that is done is only
// ever replaced by a file with the same content.
//
// what can fail -> what the caller sees -> the test that shows it (prepare/output_folder_test.cc)
//   the result is there -> Error (kUsage) -> OutputFolder.RefusesToReplace
//   another run has the lock -> Error (kUsage) -> OutputFolder.IsOneRuns
//   the job differs -> Error (kUsage) with the line that does -> OutputFolder.RefusesAnotherJob
//   killed in the middle -> goes on -> OutputFolder.GoesOn*, tests/prepare_test.py
//   no permission, disk full -> Error (kData), see base/files/output_file.h -> tests/prepare_test.py
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/files/file_descriptor.h"
#include "base/files/output_file.h"

namespace lockstep {

inline constexpr WriteErrors kPreparing{
    ExitStatus::kData, "make room and give the same command again, it goes on from here"};

class OutputFolder {
 public:
  // `results`: what must not be there yet. `job`: one line for each thing that the result depends on.
  // Throws Error (kUsage, kData).
  OutputFolder(const std::string& destination, const std::vector<std::string>& results,
               const std::vector<std::string>& job);
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;

  // The run before this one was interrupted in its commit; now that is done, and there is no more to do.
  bool is_committed() const { return is_committed_; }

  // Below it the files are made.
  const std::string& files() const { return files_; }

  // Whether the file `name` below files() is done. A folder of that name is not the file.
  bool Has(const std::string& name) const;

  // Makes the folder `name` below files(), and those that it lies in. Throws Error (kData).
  void MakeFolder(const std::string& name) const;

  // How far the files have come, where their names do not say it: what was written last, or "". It is
  // gone once the result is committed. Throws Error (kData).
  void WritePosition(const std::string& text) const;
  std::string ReadPosition() const;

  // From a name below files(), or "" for that folder itself, to a path in the destination's folder.
  using Moves = std::vector<std::pair<std::string, std::string>>;
  void Commit(const Moves& moves);

 private:
  void Lock(const std::string& destination, const std::vector<std::string>& results);
  void RequireNew(const std::vector<std::string>& results) const;
  void CheckJob(const std::vector<std::string>& job);
  void Move();

  std::string partial_;
  std::string files_;
  std::string position_;
  std::string commit_;
  FileDescriptor lock_;
  bool is_committed_ = false;
};

// A file that is written under another name until it is done (4. above).
class UnfinishedFile : public OutputFile {
 public:
  // `path`: its name. Throws Error (kData), as the other one does.
  explicit UnfinishedFile(const std::string& path);

  // What was written is on the disk, under the file's name.
  void Finish();

 private:
  std::string last_path_;
};

// Files of an output folder that get their names together (4. above). Each thread has its own; what it
// has not flushed when it is destroyed is to be made again.
class FileBatch {
 public:
  static constexpr size_t kFilesOfABatch = 64;

  explicit FileBatch(const OutputFolder& folder) : folder_(folder) {}

  // `name` below folder.files(), whose folder is there. Throws Error (kData).
  void Add(const std::string& name, std::span<const std::byte> content);
  void Flush();

 private:
  const OutputFolder& folder_;
  std::vector<std::string> names_;
};

// A file of an output folder, whole, by itself. Throws Error (kData).
void WriteOutput(const OutputFolder& folder, const std::string& name, const std::string& text);

}  // namespace lockstep
