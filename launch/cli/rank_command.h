// RankCommand: the base class of commands that all ranks of a job run together, with the same options. Each rank does
// its part of the work.
//
// Protocol of Run(), in each process of the command:
//   1. with -n or a similar option: Check() the options and the config, start the command again as ranks
//      (launch/job/start_job.h), and return the job's exit status
//   2. otherwise this process is a rank, or the only process: Begin(), meet the other ranks, compare program and
//      command with them, RunAsRank(), and leave together
// If something fails on every rank, only rank 0 prints the error. If something fails on one rank, that rank prints the
// error, and the other ranks end.
#pragma once

#include <string>
#include <vector>

#include "launch/cli/command.h"
#include "launch/job/job.h"
#include "trainer/config/schema/config.pb.h"
#include "trainer/run/trainer.h"
#include "trainer/step/world.h"

namespace lockstep {

class RankCommand : public Command {
 public:
  using Command::Command;
  int Run(const Invocation& invocation) final;

 private:
  // Whether --restarts goes with it.
  virtual bool trains() const { return false; }

  // Before ranks are started: adds what StartJob() is to know of this command. Throws Error for what is wrong.
  virtual void Check(StartedCommand& started) const;

  // Before the ranks meet. Signals have waited until now. Throws Error for what is wrong with the options.
  virtual void Begin() {}

  // Throws Error.
  virtual ExitStatus RunAsRank(Job& job, const Invocation& invocation) = 0;
};

// A config file and what --set changes in it.
struct ConfigOptions {
  std::string path;
  std::vector<std::string> assignments;

  // Adds CONFIG, and: --set.
  Option AddFile(CommandOptions& options, const std::string& what = "config file");
  void AddSet(CommandOptions& options);

  // Throws Error (kUsage).
  config::Config Load() const;
  // ... on every rank.
  config::Config Load(Job& job) const;
  // ... and for a command that is started as ranks.
  config::Config Check(StartedCommand& started) const;
};

// The config of a run or of one of its checkpoints ("RUN", "RUN@STEP"). Throws Error (kUsage).
config::Config ConfigOfRun(const std::string& run);
// ... on every rank.
config::Config ConfigOfRun(const std::string& run, Job& job);
inline constexpr char kRunPoint[] = "run folder; RUN@STEP for one of its checkpoints";

// Adds --device.
void AddDevice(CommandOptions& options, config::Config::Device& device);

// Connects the ranks' devices, after a line about what of the machine is in the way. Every rank must call it. Throws
// Error.
World Connect(Job& job, config::Config::Device device);
// ... where all ranks have the same config.
World Connect(Job& job, const config::Config& config);

// After Connect().
TrainOptions TrainOptionsOf(Job& job);

}  // namespace lockstep
