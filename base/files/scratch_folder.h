// ScratchFolder: a folder for temporary files. The folder lies in memory unless another place is given.
//
// Promise: the folder is removed with its content when its owner ends. If the owner was killed, the next ScratchFolder
// removes it when it begins.
//
// How: the folder is PARENT/lockstep-scratch-XXXXXX. Its owner locks it with flock() as long as the owner lives. Each
// new ScratchFolder removes those folders of the same user that nobody locks.
//
// what can fail -> what the caller sees -> the test that shows it (base/files/scratch_folder_test.cc)
//   there is no /dev/shm, or it is full -> path() is empty -> ScratchFolder.DoesWithout
//   the owner is killed -> the next one removes it -> ScratchFolder.RemovesWhatAKilledOneLeft
//   the next one comes between mkdir and flock -> a new folder is made -> (needs two at the same instant)
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

  // The path of the folder; empty if it could not be made.
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  FileDescriptor lock_;
};

}  // namespace lockstep
