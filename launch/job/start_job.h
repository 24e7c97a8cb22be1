// Starts the user's command again as the ranks of a job (-n, --hosts), or under a supervisor that restarts the command
// after a failure (--restarts).
//
// Protocol:
//   1. the process that the user started checks the command line and the config, and reports a mistake before any rank
//      starts, so that the error message is printed only once
//   2. this process passes three facts to the ranks in environment variables: when the command began, when it must have
//      ended, and whether its output goes to a terminal
//   3. mpirun starts this program once for each rank, with the same arguments except the StartOptions (-n, --hosts,
//      ...)
//   4. a supervisor waits for the job (launch/job/supervised_job.h) and starts the job again if --restarts allows this;
//      with --elastic the new job uses only those machines of --hosts that still work or, without --hosts, only those
//      GPUs of this machine that still work
//
// what can fail -> what the caller sees -> the test that shows it
//   -n is given inside mpirun, more ranks are asked for than --hosts lists, or the config is a pipe -> Error (kUsage)
//     -> tests/cli_test.py, tests/start_test.py
//   a rank or mpirun fails -> StartJob() returns an exit status that says how -> tests/endings_test.py
#pragma once

#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

// The options with which a user says how a command is started.
struct StartOptions {
  int ranks = 0;  // 0: -n was not given
  std::string hosts;
  int restarts = 0;
  bool elastic = false;

  // Returns the name of the first of these options that was given, such as "-n"; an empty string if none was given.
  std::string First() const;

  // Returns how many ranks the options ask for. 0: the command runs in this process alone. Throws Error (kUsage).
  int RanksWanted() const;

  // Returns how many of these ranks run on this machine; at least 1, because the machine's own cores and memory are
  // looked at even if no rank is here. Throws Error (kUsage).
  int RanksHere() const;
};

// Returns the words of a command line without the StartOptions and their values.
std::vector<std::string> WithoutStartOptions(const std::vector<std::string>& words);

// Checks that a command can be started with these options; otherwise throws Error (kUsage). `trains` says whether the
// command trains and can therefore continue from checkpoints.
void CheckStart(const StartOptions& start, bool trains);

// The command that StartJob() starts.
struct StartedCommand {
  std::string program;             // the path of this program
  std::vector<std::string> words;  // the words of the user's command line after the program
  std::string config;              // the config file that each rank reads; empty: there is none
  std::string run_dir;             // the run folder; empty: the command does not train
  bool may_use_gpus = true;
  double end_by_s = std::numeric_limits<double>::infinity();  // deadline, in Unix time
  bool prints_result = true;  // false: the result is a file, and the output only tells about it
};

// Starts the command and returns the job's exit status. Throws Error (kUsage).
int StartJob(const StartOptions& start, const StartedCommand& command);

// Sets the environment variable that tells child processes when they must have ended. `end_by_s` is in Unix seconds; if
// it is infinite, there is no limit, and the variable is not set.
void HandDownEnd(double end_by_s);

// The following three functions return the facts of step 2. In a process that the user started, the facts are about
// this process.
// Returns when the command began, on the clock of base/clock.h.
double CommandStart();
// Returns when the command must have ended, in Unix seconds; nothing if there is no limit.
std::optional<double> EndByOfJob();
// Returns whether the output of the command goes to a terminal.
bool TerminalShowsOutput();

// Converts a Unix time to the clock of base/clock.h.
double OnBootClock(double unix_s);

}  // namespace lockstep
