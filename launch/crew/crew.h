// Crew: runs many jobs, each in a child process. It runs up to `places` jobs at the same time, asks them to stop if a
// signal comes, and reports how each job ended.
//
// Promise: a job runs only as long as its crew exists. No signal is lost: if a signal comes while no job runs, the crew
// handles it before it starts the next job. A file STOP in the folder of the crew (ckpt/checkpoint.h) asks for the same
// as SIGINT. The state of each job is in the file crew.json in that folder (observe/history/crew_file.h).
//
// Protocol:
//   1. call Add() for each job, at any time, and call Wait() while IsBusy(). Wait() starts the jobs in the order of
//      Add(), each in the first free place, and returns the jobs that have ended
//   2. if SIGINT, SIGTERM, SIGHUP, SIGQUIT or SIGUSR2 comes, the crew sends SIGTERM to the running jobs, which asks
//      them to save their state and stop, and starts no other job. If a second such signal comes, or a job still runs
//      after `patience_s` seconds, the crew kills the jobs. If the file STOP appears, the crew acts as at SIGINT, and
//      removes the file when no job runs any more
//   3. if a job fails and `stops_at_failure` is set, the crew sends SIGTERM to the other running jobs and starts no
//      other job
//   4. if a job stops by itself (for example because its time is over), the other running jobs go on, and no other job
//      is started
//   5. the crew sends SIGTERM to a job at most once, because a second SIGTERM would end the job's run at once
//   6. if this process is killed, the kernel sends SIGTERM to the jobs (launch/machine/child_process.h)
//
// The state of a job that has ended is kDone if its exit status is 0. It is kStopped if the exit status is 75 or 130,
// or if a signal ended the job after the crew had sent it SIGTERM. Otherwise it is kFailed.
//
// what can fail -> what the caller sees -> the test that shows it (launch/crew/crew_test.cc)
//   a job's program cannot be started, or its output file cannot be made -> the job's record has kFailed and the reason
//     -> CrewTest.AJobThatCannotBeStarted
//   a job fails -> the job's record has kFailed, the exit status and the error message -> CrewTest.TellsOfEachEnd
//   a signal ends a job that the crew did not ask to stop -> the job's record has kPeer and a line that names the
//     signal
//     -> CrewTest.TellsOfEachEnd
//   a job fails and `stops_at_failure` is set -> the other jobs stop, and no job is started
//     -> CrewTest.AFailureStopsTheOthers
//   a job stops by itself -> stopped() has its exit status, and no other job is started
//     -> CrewTest.AJobThatStopsByItself
//   this process gets a signal of step 2 -> stopped() is 130 for SIGINT and 75 for the other signals
//     -> CrewTest.ASignalStopsAll
//   the folder gets a file STOP -> stopped() is 130, and the file is removed -> CrewTest.AStopFileStopsAll
//   a job does not stop -> the crew kills it after a second signal or after `patience_s`
//     -> CrewTest.ASecondSignalKills, .PatienceEnds
//   the crew is destroyed while jobs run -> these jobs are killed, and crew.json says that they were stopped
//     -> CrewTest.EndsItsJobs
//   another crew runs jobs in the folder -> Error (kUsage) -> observe/history/crew_file_test.cc, CrewFile.HasOneOwner
#pragma once

#include <cmath>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "launch/job/taken_signals.h"
#include "launch/machine/child_process.h"
#include "launch/machine/said_file.h"
#include "observe/history/crew_file.h"

namespace lockstep {

struct CrewJob {
  std::string name;  // the name in crew.json; unique among the jobs of the crew
  // Returns the program and its arguments. Jobs that run at the same time have different values of `place`, which count
  // from 0.
  std::function<std::vector<std::string>(int64_t place)> command;
  // The files to which the job's standard output (`output`) and standard error (`said`) are appended. If one of these
  // paths is empty, the job writes to that stream of this process instead of a file. If the job fails, its error
  // message is read from `said`.
  std::string output{};
  std::string said{};
  // Returns whether the job was done before, so that it need not be started.
  std::function<bool()> is_done = [] { return false; };
};

struct CrewOptions {
  std::string folder;  // the folder that has crew.json
  int64_t places = 1;  // how many jobs run at the same time, at most
  bool stops_at_failure = false;
  double patience_s = HUGE_VAL;  // seconds from a signal's request to stop until jobs are killed
};

class Crew {
 public:
  // Blocks the signals of step 2 until this process ends, so that no signal is lost before a Crew is made.
  static void HoldSignals();

  // Makes a crew without jobs, and locks the folder for it. Throws Error (kUsage) if another crew has the folder.
  explicit Crew(CrewOptions options);
  // Kills the running jobs.
  ~Crew();
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  // Adds a job and returns the job's number, counted from 0.
  int64_t Add(CrewJob job);

  // Returns whether a job runs or may still be started.
  bool IsBusy() const;

  // Starts the jobs that may be started, and then waits until a job ends or a signal comes, for a fifth of a second at
  // most. Returns the numbers of the jobs that have ended, including the jobs that were done before or could not be
  // started.
  std::vector<int64_t> Wait();

  // Returns the warnings that jobs have written to their `said` files and that no earlier call has returned.
  std::vector<std::string> TakeWarnings();

  // The numbers of the running jobs, in the order in which they were started.
  const std::vector<int64_t>& running() const { return running_; }

  const JobRecord& job(int64_t number) const { return members_.at(number).record; }

  // The first signal that asked the jobs to stop; SIGINT for the file STOP; 0: none.
  int signal() const { return signal_; }

  // The exit status for this process if a signal of step 2 has come or a job has ended with status 75 or 130; otherwise
  // nothing.
  const std::optional<ExitStatus>& stopped() const { return stopped_; }

  // The number of the first job that failed; nothing if no job failed before the first stop.
  const std::optional<int64_t>& failed() const { return failed_; }

 private:
  struct Member {
    CrewJob job;
    JobRecord record;
    int64_t place = 0;
    bool was_asked = false;  // SIGTERM was sent to the job
    double began_s = 0;      // start of the job, in seconds since boot
    std::optional<SaidFile> output{};
    std::optional<SaidFile> said{};
    std::optional<ChildProcess> process{};
  };

  bool MayStart() const;
  std::vector<int64_t> StartSome();
  void Start(int64_t number);
  int64_t FreePlace() const;
  void OnSignal(int signal);
  void LookForStop();
  void AnswerStop();
  void Ask();
  void Kill();
  std::vector<int64_t> TakeEnded();
  void Settle(int64_t number, const ChildProcess::End& end);
  void Fail(int64_t number);
  void End(Member& member, JobState state);
  void Write();
  void AddWarnings(Member& member);

  CrewOptions options_;
  std::vector<JobRecord> before_;  // the records of an earlier crew in the folder
  CrewFile file_;
  TakenSignals taken_;
  std::deque<Member> members_;
  std::vector<int64_t> running_;
  int64_t next_ = 0;  // the number of the job to start next
  int signal_ = 0;
  bool has_stop_ = false;  // the file STOP asked the jobs to stop, and still exists
  double killed_at_s_ = HUGE_VAL;
  std::optional<ExitStatus> stopped_;
  std::optional<int64_t> failed_;
  bool changed_ = false;               // records have changed since crew.json was written
  std::vector<std::string> warnings_;  // those of jobs that have ended, for TakeWarnings()
};

}  // namespace lockstep
