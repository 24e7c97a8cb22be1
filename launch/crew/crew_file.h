// CrewFile: writes and reads FOLDER/crew.json, which has the state of each job of a crew (launch/crew/crew.h). Other
// processes can read it, too, and it stays when the crew has ended.
//
// Promise: a reader always sees a complete file, as it was after one of the changes. Once a crew has ended, for
// whatever reason, Read() returns none of its jobs as running.
//
// Protocol: the crew holds a lock on FOLDER/crew.lock from its beginning to its end, and replaces FOLDER/crew.json in
// one step after each change. If a reader can take the lock, there is no crew. Jobs that the file still calls running
// were then stopped by the end of the crew.
//
// The format: {"jobs": [JOB, ...]}, in the order of Crew::Add(). JOB has "name", "state" ("waiting", "running", "done",
// "stopped", "failed"); once it has begun, "begin" in Unix seconds; and once it has ended, "end", "seconds" (how long
// it ran), "status" (the exit status), "signal" (the signal that ended it; 0: none), and "line" (its error message).
//
// what can fail -> what the caller sees -> the test that shows it (launch/crew/crew_file_test.cc)
//   the file cannot be written -> a warning, once, and the jobs go on -> CrewFile.CannotBeWritten
//   there is no file, or its content is no such JSON -> Read() returns no jobs -> CrewFile.IsMissingOrDamaged
//   the crew was killed -> Read() returns its running jobs as stopped -> CrewFile.OfACrewThatWasKilled
//   another crew holds the folder -> Error (kUsage) -> CrewFile.HasOneOwner
//   the file system has no locks -> two crews in one folder do not notice each other -> (none)
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/files/file_descriptor.h"

namespace lockstep {

enum class JobState { kWaiting, kRunning, kDone, kStopped, kFailed };

// The state of a job, and how it ended.
struct JobRecord {
  std::string name;
  JobState state = JobState::kWaiting;
  double begin = 0;                       // Unix time; 0: it has not begun
  double end = 0;                         // Unix time; 0: it has not ended
  double seconds = 0;                     // how long it ran
  ExitStatus status = ExitStatus::kDone;  // the exit status; kPeer if a signal ended the job
  int signal = 0;                         // the signal that ended the job; 0: none
  std::string line{};                     // the error message of the job, if it failed
};

class CrewFile {
 public:
  // Locks `folder`, which must exist, for one crew. Throws Error (kUsage).
  explicit CrewFile(const std::string& folder);

  // Replaces crew.json.
  void Write(const std::vector<JobRecord>& jobs);

  // Returns the jobs of the folder's newest crew.
  static std::vector<JobRecord> Read(const std::string& folder);

 private:
  std::string path_;
  FileDescriptor lock_;
  bool warned_ = false;
};

}  // namespace lockstep
