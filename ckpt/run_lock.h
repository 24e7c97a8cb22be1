// RunLock: makes sure that only one job at a time trains in a run folder.
//
// Promise: while one process holds the lock, no other process gets it, on any machine that sees the folder. The system
// releases the lock when the process ends for any reason.
//
// How: the process locks the file RUN/lock with flock(). The file names the process, its machine and its job. If a
// second job finds the lock taken, its error message shows these names. The other ranks of the job read the file to
// check that they see the same folder. IsHeld() takes the lock for a moment. A job therefore tries for a second before
// it says that the lock is held.
//
// what can fail -> what the caller sees -> the test that shows it (ckpt/run_lock_test.cc)
//   another process holds the lock -> Error (kUsage) naming that process -> RunLock.IsHeldByOneProcess
//   another process calls IsHeld() -> nothing, but a wait of milliseconds -> RunLock.IsTakenWhileOthersLook
//   the holder was killed -> the lock is free -> RunLock.GoesWithItsProcess
//   the file system has no locks -> why_not() says so, and nothing is locked -> (none)
//   no permission, no folder -> Error (kUsage) -> RunLock.NamesWhatIsMissing
#pragma once

#include <string>

#include "base/files/file_descriptor.h"

namespace lockstep {

class RunLock {
 public:
  // Takes the lock for the job with the unique name `job`. Throws Error (kUsage) if another process holds the lock, or
  // if the lock file cannot be opened or written.
  RunLock(const std::string& run_dir, const std::string& job);

  // Returns whether any process holds the lock.
  static bool IsHeld(const std::string& run_dir);

  // Returns whether `job` was the last job that took the lock, according to the lock file as this machine sees it.
  static bool IsOf(const std::string& run_dir, const std::string& job);

  // Returns whether the last job that took the lock is not `job`. Returns false if the lock file does not name a job.
  static bool IsOfAnother(const std::string& run_dir, const std::string& job);

  // Returns the reason why two jobs could train in the folder at the same time, or an empty text if they cannot.
  const std::string& why_not() const { return why_not_; }

 private:
  FileDescriptor file_;
  std::string why_not_;
};

}  // namespace lockstep
