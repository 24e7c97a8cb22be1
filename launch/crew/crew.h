// Crew: owns the processes of many jobs. It runs as many side by side as there are places, passes signals on, and says
// what has become of each job.
//
// Promise: a job runs only as long as its crew. No signal is lost: one that comes while no job runs is heeded before
// the next job is started. What has become of each job is in the folder's crew.json (launch/crew/crew_file.h).
//
// Protocol:
//   1. Add() jobs, at any time; call Wait() while IsBusy(). Wait() starts the jobs in their order, each in the first
//      place that is free, and returns those that have ended
//   2. SIGINT, SIGTERM, SIGHUP, SIGQUIT and SIGUSR2 ask all jobs to save their state and stop (SIGTERM), and no other
//      is started; a second such signal kills them, and so does the end of the client's patience
//   3. a job that fails asks the others to stop in the same way, if the client wants that
//   4. a job that stops by itself, because its time is over, say, lets the others go on, and no other is started
//   5. no job is asked twice, because a second SIGTERM ends a run at once
//   6. if this process is killed, the kernel asks the jobs to stop (launch/machine/child_process.h)
//
// The state of a job that has ended is kDone with status 0; kStopped with status 75 or 130, or if a signal ended it
// after it was asked to stop; and otherwise kFailed.
//
// what can fail -> what the caller sees -> the test that shows it (launch/crew/crew_test.cc)
//   a job's program or file cannot be started or made -> the job has failed, with the reason
//     -> CrewTest.AJobThatCannotBeStarted
//   a job fails -> its status and the line of its error -> CrewTest.TellsOfEachEnd
//   a signal ends a job that nobody asked to stop -> kPeer and a line that names the signal -> CrewTest.TellsOfEachEnd
//   a job fails where the client wants all to stop -> the others stop, and no other is started
//     -> CrewTest.AFailureStopsTheOthers
//   a job stops by itself -> stopped() has its status, and no other is started -> CrewTest.AJobThatStopsByItself
//   a signal -> stopped() has 130 for SIGINT and 75 for others -> CrewTest.ASignalStopsAll
//   a job does not stop -> a second signal, or the end of patience, kills it -> CrewTest.ASecondSignalKills,
//     .PatienceEnds
//   the crew ends before its jobs -> they are killed, and crew.json says that they were stopped -> CrewTest.EndsItsJobs
//   another crew is at work in the folder -> Error (kUsage) -> CrewFile.HasOneOwner
#pragma once

#include <cmath>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "launch/crew/crew_file.h"
#include "launch/job/taken_signals.h"
#include "launch/machine/child_process.h"
#include "launch/machine/said_file.h"

namespace lockstep {

struct CrewJob {
  std::string name;  // in crew.json; no other job of the crew has it
  // Returns the program and its arguments. Of the jobs that run at a time each has another place, from 0.
  std::function<std::vector<std::string>(int64_t place)> command;
  // The files to whose ends its standard output and its standard error go; empty: those of this process. The line of an
  // error is read from `said`.
  std::string output{};
  std::string said{};
  // Whether it was done before, and need not be started.
  std::function<bool()> is_done = [] { return false; };
};

struct CrewOptions {
  std::string folder;  // of crew.json
  int64_t places = 1;  // how many jobs run at a time
  bool stops_at_failure = false;
  double patience_s = HUGE_VAL;  // after it, jobs that a signal has asked to stop are killed
};

class Crew {
 public:
  // Holds back the signals above for the rest of this process's time, so that none is lost before there is a crew.
  static void HoldSignals();

  // Throws Error (kUsage).
  explicit Crew(CrewOptions options);
  // Kills the jobs that run.
  ~Crew();
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  // Returns the job's number, from 0.
  int64_t Add(CrewJob job);

  // Whether a job runs or may still be started.
  bool IsBusy() const;

  // Starts what may be started, and waits for a fifth of a second at most, until a job ends or a signal comes. Returns
  // the numbers of the jobs that have ended.
  std::vector<int64_t> Wait();

  // The jobs that run, in their order.
  const std::vector<int64_t>& running() const { return running_; }

  const JobRecord& job(int64_t number) const { return members_.at(number).record; }

  // The first signal that asked the jobs to stop; 0: none.
  int signal() const { return signal_; }

  // The status of a process that was asked to stop, if a signal has come or a job has stopped by itself.
  const std::optional<ExitStatus>& stopped() const { return stopped_; }

  // The first job that failed, unless jobs had been stopped before.
  const std::optional<int64_t>& failed() const { return failed_; }

 private:
  struct Member {
    CrewJob job;
    JobRecord record;
    int64_t place = 0;
    bool was_asked = false;  // to stop
    double began_s = 0;      // since boot
    std::optional<SaidFile> output{};
    std::optional<SaidFile> said{};
    std::optional<ChildProcess> process{};
  };

  bool MayStart() const;
  std::vector<int64_t> StartSome();
  void Start(int64_t number);
  int64_t FreePlace() const;
  void OnSignal(int signal);
  void Ask();
  void Kill();
  std::vector<int64_t> TakeEnded();
  void Settle(int64_t number, const ChildProcess::End& end);
  void Fail(int64_t number);
  void End(Member& member, JobState state);
  void Write();

  CrewOptions options_;
  std::vector<JobRecord> before_;  // the jobs of an earlier crew in the folder
  CrewFile file_;
  TakenSignals taken_;
  std::deque<Member> members_;
  std::vector<int64_t> running_;
  int64_t next_ = 0;  // the job that is started next
  int signal_ = 0;
  double killed_at_s_ = HUGE_VAL;
  std::optional<ExitStatus> stopped_;
  std::optional<int64_t> failed_;
  bool changed_ = false;  // since the file was written
};

}  // namespace lockstep
