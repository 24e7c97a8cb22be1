// RankCommand: the base class of commands that all ranks of a job run together, with the same options. Each rank does
// its part of the work.
//
// Protocol of Run(), in each process of the command:
//   1. with -n or a similar option: Check() the options and the config, start the command again as ranks
//      (launch/job/start_job.h), and return the job's exit status
//   2. otherwise this process is a rank, or the only process: call Begin(), join the other ranks (launch/job/job.h),
//      check that all ranks run the same program and command, call RunAsRank(), and leave together with the other ranks
// If something fails on every rank, only rank 0 prints the error. If something fails on one rank, that rank prints the
// error, and the other ranks end.
#pragma once

#include <string>
#include <vector>

#include "config/schema/config.pb.h"
#include "launch/cli/command/command.h"
#include "launch/job/job.h"
#include "trainer/run/train_options.h"
#include "trainer/step/world.h"
#include "use/named_runs.h"

namespace lockstep {

class RankCommand : public Command {
 public:
  using Command::Command;
  int Run(const Invocation& invocation) override;

 private:
  // Returns whether the command accepts --restarts.
  virtual bool trains() const { return false; }

  // Adds to `started` the facts about this command that StartJob() needs. Run() calls this function before it starts
  // ranks. Throws Error if the command line or the config is wrong.
  virtual void Check(StartedCommand& started) const;

  // Prepares this process. Run() calls this function before the ranks meet. The signals that were blocked at the start
  // (launch/job/early_signals.h) stay blocked until this function has returned. Throws Error if the options are wrong.
  virtual void Begin() {}

  // Does this rank's part of the work and returns the exit status. Throws Error.
  virtual ExitStatus RunAsRank(Job& job, const Invocation& invocation) = 0;
};

// A config file, and the changes that the option --set makes to it.
struct ConfigOptions {
  std::string path;
  std::vector<std::string> assignments;

  // AddFile() adds the argument CONFIG, and AddSet() adds the option --set.
  Option AddFile(CommandOptions& options, const std::string& what = "config file");
  void AddSet(CommandOptions& options);

  // Loads the config in this process. Throws Error (kUsage).
  config::Config Load() const;
  // Loads the config on every rank. An error on any rank is thrown on all ranks. Every rank must call this function.
  config::Config Load(Job& job) const;
  // Loads the config in a process that starts the command as ranks. Adds to `started` those facts of the config that
  // StartJob() needs. Throws Error (kUsage).
  config::Config Check(StartedCommand& started) const;
};

// Returns on every rank the runs that `name` (RUN or RUN@STEP) stands for, with other weights if `weights` is not empty
// (use/named_runs.h). An error on any rank is thrown on all ranks. Every rank must call this function.
std::vector<NamedRun> RunsNamed(const std::string& name, const std::string& weights, Job& job);
inline constexpr char kRunPoint[] =
    "run folder, also of folds; RUN@STEP, RUN@best or RUN@last for a checkpoint";
inline constexpr char kOtherWeights[] =
    "safetensors file of weights for RUN's model, such as average makes, instead of its own";

// Adds the option --device.
void AddDevice(CommandOptions& options, config::Config::Device& device);

// Connects the ranks' devices. Rank 0 then prints a warning if something on the machines slows the ranks down. Every
// rank must call this function. Throws Error.
World Connect(Job& job, config::Config::Device device);
// Checks that all ranks have the same config, gives the config's time limits to the watchdog, and then calls Connect()
// with the config's device.
World Connect(Job& job, const config::Config& config);

// Returns the options for training as a rank of `job`. Call it after Connect().
TrainOptions TrainOptionsOf(Job& job);

}  // namespace lockstep
