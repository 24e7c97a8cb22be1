// Starts the user's command again as the ranks of a job (-n, --hosts), or under a supervisor that restarts the command
// after a failure (--restarts).
//
// Protocol:
// Protocol:
//   1. the process that the user started checks the command line and the config, and prints any mistake once and fast
//   2. this process passes three facts to the ranks in environment variables: when the command began, when it must have
//      ended, and whether its output goes to a terminal
//   3. mpirun starts this program as each rank, with the same arguments except -n, --hosts and the like
//   4. a supervisor waits for the job (launch/job/supervised_job.h) and starts the job again if --restarts allows this;
//      with --elastic the new job uses the machines and GPUs that still work
//
// what can fail -> what the caller sees -> the test that shows it
//   -n inside mpirun, more ranks than --hosts has room for, a config that is a pipe -> Error (kUsage)
//     -> tests/cli_test.py, tests/start_test.py
//   a rank or mpirun ends badly -> the exit status -> tests/endings_test.py
#pragma once

#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

// What a user says of how a command is started.
struct StartOptions {
  int ranks = 0;  // 0: -n was not given
  std::string hosts;
  int restarts = 0;
  bool elastic = false;

  // The first of them that was given; empty: none.
  std::string First() const;

  // How many ranks are wanted; 0: this process alone. Throws Error (kUsage).
  int RanksWanted() const;
};

// `words` of a command line without those that are StartOptions.
std::vector<std::string> WithoutStartOptions(const std::vector<std::string>& words);

// Throws Error (kUsage) where a command cannot be started so. `trains`: whether it is one that goes on from
// checkpoints.
void CheckStart(const StartOptions& start, bool trains);

// What is started.
struct StartedCommand {
  std::string program;             // this one
  std::vector<std::string> words;  // behind it, of the user's command line
  std::string config;              // the file that each rank reads; empty: none
  std::string run_dir;             // that it trains in; empty: it does not train
  bool may_use_gpus = true;
  double end_by_s = std::numeric_limits<double>::infinity();  // in Unix time
  bool prints_result = true;  // rather than tell of one that lies elsewhere
};

// Starts it and returns the job's exit status. Throws Error (kUsage).
int StartJob(const StartOptions& start, const StartedCommand& command);

// What was handed down to this process; where it was started by its user it is true of itself.
double CommandStart();               // on the clock of base/clock.h
std::optional<double> EndByOfJob();  // in Unix time; nothing: nobody has said
bool TerminalShowsOutput();

// A Unix time on the clock of base/clock.h.
double OnBootClock(double unix_s);

}  // namespace lockstep
