// CrewFile: FOLDER/crew.json, which says what has become of each job of a crew (launch/crew/crew.h), also to other
// processes and after the crew has ended.
//
// Promise: a reader sees the file whole, as it was after one of the changes. No job is said to run whose crew has
// ended, whatever ended it.
//
// Protocol: the crew holds a lock on FOLDER/crew.lock from its beginning to its end, and replaces FOLDER/crew.json in
// one step after each change. A reader that gets the lock for a moment knows that there is no crew: what the file calls
// running was stopped by the end of the crew.
//
// The format: {"jobs": [JOB, ...]}, in the order in which the jobs were given. JOB has "name", "state" ("waiting",
// "running", "done", "stopped", "failed"); once it has begun, "begin" in Unix seconds; and once it has ended, "end",
// "seconds" (how long it ran), "status", "signal" (that ended it; 0: none), and "line" (the line of its error).
//
// what can fail -> what the caller sees -> the test that shows it (launch/crew/crew_file_test.cc)
//   the file cannot be written -> a warning, once, and the jobs go on -> CrewFile.CannotBeWritten
//   there is no file, it is damaged, or it is none -> Read() returns no jobs -> CrewFile.IsMissingOrDamaged
//   the crew was killed -> its running jobs are read as stopped -> CrewFile.OfACrewThatWasKilled
//   another crew holds the folder -> Error (kUsage) -> CrewFile.HasOneOwner
//   the file system has no locks -> as if each crew were the only one -> (none)
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
  ExitStatus status = ExitStatus::kDone;  // kPeer if a signal ended it
  int signal = 0;                         // that ended it; 0: none
  std::string line{};                     // the line of its error, if it failed
};

class CrewFile {
 public:
  // Takes the folder, which exists, for a crew. Throws Error (kUsage).
  explicit CrewFile(const std::string& folder);

  // Replaces the file.
  void Write(const std::vector<JobRecord>& jobs);

  // Returns the jobs of the folder's newest crew.
  static std::vector<JobRecord> Read(const std::string& folder);

 private:
  std::string path_;
  FileDescriptor lock_;
  bool warned_ = false;
};

}  // namespace lockstep
