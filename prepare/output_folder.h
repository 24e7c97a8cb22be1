// OutputFolder: where a result is made, file by file, until all of it gets its name at once.
//
// Promise: a run that is killed at any instant, or loses its power, and is started again with the same
// job goes on where it stopped: each file that was done is kept. No result has its name before all of
// it is on the disk. Two runs never work on one result.
//
// Protocol, for a result named DST:
//   1. If the result is already there, the run ends with an error, unless DST.partial says that the commit of this
//      result was interrupted (5).
//   2. mkdir DST.partial, and flock it: a second run is refused. The lock ends with the process. Whoever
//      gets the lock of a folder that was removed meanwhile, by the run that held it, starts again at 1;
//      and 1 is asked once more by who has it, for that run may have made the result.
//   3. DST.partial/job holds the lines of the job. Where it is there and differs, the run is refused.
//      DST.partial/position is what the run wrote down with WritePosition.
//   4. Files are written below DST.partial/files:
//        a. write NAME.tmp
//        b. syncfs: the content is on the disk
//        c. rename it to NAME: a file that has its name is done
//      a and c for each file, b for kFilesOfABatch of them together: fsync for each of 2,000 files of
//      30 KB takes 0.5 ms a file on the two-core machine of the README, syncfs for 64 at once 0.18 ms,
//      of which 0.08 are the writing. If the run is killed, at most the last 64 files of each thread are lost.
//   5. Commit, of a list of moves:
//        a. syncfs
//        b. write the moves to DST.partial/commit, as in 4: the last names without their folder, which is
//           DST's, so that a run may go on from another working directory
//        c. syncfs: no name is on the disk before the commit is
//        d. rename what is in DST.partial/files and has not got its last name; nothing is replaced
//        e. syncfs, so that the names are on the disk
//        f. rmdir files, unlink position, job, commit, rmdir DST.partial
//      A run that finds DST.partial/commit goes on at d. (If a run is killed right before it removes DST.partial,
//      everything is done. The next run then ends with the error that the result is already there.)
//
// Invariants: DST.partial lies beside DST, on the same file system. Names in it are never replaced but
// by equal content.
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
