// NewFile: writes a new file under a temporary name. When the new file is finished, it replaces the old file. NewFile
// is for data that can be made again, such as caches.
//
// Promise: `path` does not change until Finish() renames the new file to it, so readers find either the whole old file
// or the whole new file. A file that is not finished is removed. Nothing is synced: after a power cut `path` may hold
// anything, so its readers need checksums. For data that must survive, use base/files/atomic_file.h.
//
// Protocol:
//   1. make PATH.??????, a new file with a name that no other process uses. Only the user who owns the file can read it
//   2. write everything
//   3. close the file. Some file systems report only at this point that they could not store the content
//   4. rename the file to PATH
// A process that is killed between steps 1 and 4 leaves PATH.?????? behind.
//
// what can fail -> what the caller sees -> the test that shows it (base/files/new_file_test.cc)
//   no folder, no permission -> Error with the path and the system's reason -> NewFile.NamesWhatCannotBeMade
//   disk full, write error -> likewise; only the old file stays -> NewFile.AFullDiskLeavesTheOldFile
//   `path` is a folder -> likewise -> NewFile.DoesNotReplaceAFolder
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/files/output_file.h"

namespace lockstep {

class NewFile {
 public:
  // Makes the temporary file. Like all functions of this class, throws Error if the file system reports an error.
  NewFile(std::string path, const WriteErrors& errors);

  // Returns the path that the file has until Finish() renames it.
  const std::string& temporary_path() const { return temporary_.path; }

  // Appends `bytes` to the file.
  void Write(std::span<const std::byte> bytes);

  // Renames the file to `path`. No other call may follow.
  void Finish();

 private:
  // A temporary file. The destructor removes it unless `path` is empty.
  struct Temporary {
    Temporary(const std::string& target, const WriteErrors& errors);
    ~Temporary();
    Temporary(const Temporary&) = delete;
    Temporary& operator=(const Temporary&) = delete;

    std::string path;
  };

  std::string path_;
  WriteErrors errors_;
  Temporary temporary_;
  OutputFile file_;
  int64_t written_ = 0;  // how many bytes were written
};

}  // namespace lockstep
