// RunLock: makes sure that only one job at a time trains in a run folder.
//
// Promise: while one process holds the lock, no other process gets it, on any machine that sees the folder. The system
// releases the lock when the process ends for any reason.
//
// How: the process locks the file RUN/lock with flock(). The file names the process, its machine and its job. The error
// shows these names to a second job. The other ranks of the job read the file to check that they see the same folder.
// IsHeld() takes the lock for a moment. A job therefore tries for a second before it says that the lock is held.
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
  // `job` is the name of this job, which no other job may have. Throws Error (kUsage).
  RunLock(const std::string& run_dir, const std::string& job);

  // Returns whether any process holds the lock.
  static bool IsHeld(const std::string& run_dir);

  // Returns whether `job` was the last job that took the lock, according to the lock file as this machine sees it.
  static bool IsOf(const std::string& run_dir, const std::string& job);

  // Returns whether the last job that took the lock is not `job`. Returns false if the lock file does not name a job.
  static bool IsOfAnother(const std::string& run_dir, const std::string& job);

  // The reason why two jobs could train in the folder at the same time; empty if they cannot.
  const std::string& why_not() const { return why_not_; }

 private:
  FileDescriptor file_;
  std::string why_not_;
};

}  // namespace lockstep
