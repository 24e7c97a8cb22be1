// NewFile: writes a new file under a temporary name, which replaces the old file when it is finished. NewFile is for
// data that can be made again, such as caches.
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
// A process that is killed between 1 and 4 leaves PATH.?????? behind.
//
// what can fail -> what the caller sees -> the test that shows it (base/files/new_file_test.cc)
//   no folder, no permission -> Error with the path and the system's reason -> NewFile.NamesWhatCannotBeMade
//   disk full, write error -> likewise; `path` stays, nothing else -> NewFile.AFullDiskLeavesTheOldFile
//   a folder has its name -> likewise -> NewFile.DoesNotReplaceAFolder
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/files/output_file.h"

namespace lockstep {

class NewFile {
 public:
  // Throws Error, as the others do.
  NewFile(std::string path, const WriteErrors& errors);

  // Where it lies until it is finished.
  const std::string& temporary_path() const { return temporary_.path; }

  // Appends.
  void Write(std::span<const std::byte> bytes);

  // The last call.
  void Finish();

 private:
  // Removed with its owner, unless it has no path any more.
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
  int64_t written_ = 0;  // bytes
};

}  // namespace lockstep
