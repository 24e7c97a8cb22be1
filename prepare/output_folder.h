// OutputFolder: the folder DST.partial, in which a command makes the files of a result named DST. When all files are on
// the disk, the result gets its name.
//
// Promise: if a run is killed at any instant, or the power fails, the user can run the same command again, and it
// continues where the killed run stopped. Each file that was finished is kept. A result gets its final name only when
// all of it is on the disk. Two runs never work on one result.
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
//   3. DST.partial/job holds the lines of the job. If this file exists and its lines differ from the run's job, the run
//      ends with an error. DST.partial/position holds the text that the run saved with WritePosition.
//   4. The run writes files below DST.partial/files:
//        a. write NAME.tmp
//        b. syncfs: the content is on the disk
//        c. rename NAME.tmp to NAME: a file named NAME is done
//      The run does a and c for each file, and b once for every kFilesOfABatch (64) files. On the two-core machine of
//      the README, 2,000 files of 30 KB took 0.5 ms each with an fsync for each file. With a syncfs for every 64 files
//      they took 0.18 ms each, of which 0.08 ms were for writing. If the run is killed, at most the last 64 files of
//      each thread are lost. (The shards of prepare/tokens.h have their names from the beginning. The text that the
//      run saves with WritePosition() says which of their tokens are on the disk.)
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
//   the result exists already -> Error (kUsage) -> OutputFolder.RefusesToReplace
//   another run has the lock -> Error (kUsage) -> OutputFolder.IsOneRuns
//   the result would be a file of a run -> Error (kUsage) -> tests/outputs_test.py
//   the job differs -> Error (kUsage) with the line that differs -> OutputFolder.RefusesAnotherJob
//   a run is killed -> the next run continues -> OutputFolder.GoesOn*, tests/prepare_test.py
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
  // Opens and locks the output folder of `destination` (steps 1 to 3 above), and finishes an interrupted commit.
  // `results` are the paths that must not exist yet. `job` has one line for each thing that the result depends on.
  // Throws Error (kUsage, kData).
  OutputFolder(const std::string& destination, const std::vector<std::string>& results,
               const std::vector<std::string>& job);
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;

  // Returns whether an earlier run was interrupted while it committed, and the constructor has finished that commit. If
  // so, the caller has nothing left to do.
  bool is_committed() const { return is_committed_; }

  // Returns the path of the folder in which the run makes its files.
  const std::string& files() const { return files_; }

  // Returns whether the file `name` below files() is done. Returns false for a folder with that name.
  bool Has(const std::string& name) const;

  // Makes the folder `name` below files(), and the folders above it. Throws Error (kData).
  void MakeFolder(const std::string& name) const;

  // WritePosition() saves a text that says how far the run has come. The text is for runs whose progress cannot be seen
  // from the names of their files. ReadPosition() returns the text that was written last, or "". Commit() removes the
  // text. Throws Error (kData).
  void WritePosition(const std::string& text) const;
  std::string ReadPosition() const;

  // The moves of a commit. The first element of a pair is a name below files(), or "" for the folder files() itself.
  // The second element is the final path, which must lie in the destination's folder.
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

// A file that gets its final name only after all of it was written (step 4 above).
class UnfinishedFile : public OutputFile {
 public:
  // Opens the temporary file. `path` is the file's final name. Throws Error (kData), as the constructor of OutputFile
  // does.
  explicit UnfinishedFile(const std::string& path);

  // Waits until the content is on the disk, and then gives the file its name.
  void Finish();

 private:
  std::string last_path_;
};

// Files of an output folder that get their names together (step 4 above). Each thread has a FileBatch of its own. Files
// that were not flushed when the FileBatch is destroyed have no final name, so a later run makes them again.
class FileBatch {
 public:
  static constexpr size_t kFilesOfABatch = 64;

  explicit FileBatch(const OutputFolder& folder) : folder_(folder) {}

  // Writes the file `name` below folder.files(). The folder of this file must exist. Throws Error (kData).
  void Add(const std::string& name, std::span<const std::byte> content);
  void Flush();

 private:
  const OutputFolder& folder_;
  std::vector<std::string> names_;
};

// Writes `text` to the file `name` of an output folder, with an fsync for this file alone. Throws Error (kData).
void WriteOutput(const OutputFolder& folder, const std::string& name, const std::string& text);

}  // namespace lockstep
