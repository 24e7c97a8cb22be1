// CrewFile: writes and reads FOLDER/crew.json, which has the state of each job of a crew (launch/crew/crew.h). Other
// processes can read the file, and the file stays when the crew has ended.
//
// Promise: a reader always sees a complete file, which has the states of all jobs at one moment. Once a crew has ended,
// for whatever reason, Read() returns none of its jobs as running.
//
// Protocol: the crew holds a lock on FOLDER/crew.lock from its beginning to its end, and replaces FOLDER/crew.json
// atomically after the states of jobs have changed. If nobody holds the lock, there is no crew. Jobs that the file
// still calls running were then stopped by the end of the crew.
//
// The format: {"jobs": [JOB, ...]}, in the order of Crew::Add(). JOB has "name" and "state" ("waiting", "running",
// "done", "stopped", "failed"). Once the job has begun, JOB also has "begin" in Unix seconds. Once the job has ended,
// JOB also has "end" in Unix seconds, "seconds" (how long the job ran), "status" (the exit status), "signal" (the
// signal that ended the job; 0: none), and "line" (the error message).
//
// what can fail -> what the caller sees -> the test that shows it (observe/history/crew_file_test.cc)
//   the file cannot be written -> a warning, once, and the jobs go on -> CrewFile.CannotBeWritten
//   there is no file, or its content does not have this format -> Read() returns no jobs -> CrewFile.IsMissingOrDamaged
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
  double begin = 0;                       // Unix time in seconds; 0: the job has not begun
  double end = 0;                         // Unix time in seconds; 0: the job has not ended
  double seconds = 0;                     // how many seconds the job ran
  ExitStatus status = ExitStatus::kDone;  // the exit status; kPeer if a signal ended the job
  int signal = 0;                         // the signal that ended the job; 0: none
  std::string line{};                     // the error message of the job, if it failed
};

class CrewFile {
 public:
  // Locks `folder`, which must exist, for one crew. Throws Error (kUsage).
  explicit CrewFile(const std::string& folder);

  // Replaces the content of crew.json by `jobs`. If several calls fail, only the first of them prints a warning.
  void Write(const std::vector<JobRecord>& jobs);

  // Returns whether a crew has the folder now.
  static bool HasCrew(const std::string& folder);

  // Returns the jobs of the folder's newest crew; no jobs if crew.json is missing or damaged.
  static std::vector<JobRecord> Read(const std::string& folder);

 private:
  std::string path_;
  FileDescriptor lock_;
  bool warned_ = false;
};

}  // namespace lockstep
