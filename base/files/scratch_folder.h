// ScratchFolder: a folder for temporary files, in memory unless another place is given, which goes with its owner.
//
// Promise: it is removed with all that is in it when its owner ends, and where its owner was killed, when the
// next one begins.
//
// How: PARENT/lockstep-scratch-XXXXXX, locked with flock() as long as its owner lives. Whoever makes one removes those
// of the same user that nobody locks.
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

  // Empty: there is none.
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  FileDescriptor lock_;
};

}  // namespace lockstep
