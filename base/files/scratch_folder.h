// ScratchFolder: a folder for temporary files. The folder lies in /dev/shm, that is, in memory, unless another parent
// folder is given.
//
// Promise: the destructor removes the folder with its content. If the process is killed before that, the next
// ScratchFolder that is made removes the folder.
//
// How: the folder is PARENT/lockstep-scratch-XXXXXX. The ScratchFolder keeps it locked with flock(). Each new
// ScratchFolder removes the folders with this prefix in PARENT that belong to the same user and are not locked.
//
// what can fail -> what the caller sees -> the test that shows it (base/files/scratch_folder_test.cc)
//   there is no /dev/shm, or it is full -> path() is empty -> ScratchFolder.DoesWithout
//   the process is killed -> the next ScratchFolder removes the folder -> ScratchFolder.RemovesWhatAKilledOneLeft
//   another process removes the folder between mkdir and flock -> a new folder is made -> (none: hard to time)
#pragma once

#include <string>

#include "base/files/file_descriptor.h"

namespace lockstep {

class ScratchFolder {
 public:
  explicit ScratchFolder(const std::string& parent = "/dev/shm");
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  // Returns the path of the folder, or an empty text if the folder could not be made.
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  FileDescriptor lock_;
};

}  // namespace lockstep
