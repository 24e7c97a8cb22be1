// Finds Open MPI's mpirun, and builds the command line and the environment that start a job with it.
#pragma once

#include <string>
#include <vector>

namespace lockstep {

// The machines on which a job's ranks run.
struct Machines {
  enum class Kind {
    kThis,
    kSlurmJob,  // the machines of the Slurm job to which this process belongs
    kListed,    // the machines of `hosts`, through ssh
  };
  Kind kind = Kind::kThis;
  std::string hosts;  // for kListed: "node1:8,node2:8", with the number of ranks of each machine

  bool one() const { return kind == Kind::kThis; }
};

// Returns the machines in `hosts`. If `hosts` is empty and this process belongs to a Slurm job with several machines,
// returns the machines of that job.
Machines MachinesFor(const std::string& hosts);

// Returns the command that runs `program` with `arguments` as `ranks` ranks. The command has the flags that mpirun
// needs in a container, as root, without ssh, or with more ranks than cores. For kListed the command also names the
// network that connects the machines, and makes mpirun notice a machine that is lost. Ranks on other machines get this
// process's environment variables that begin with NCCL_, and the variables named in `variables`, which need not be set
// yet.
std::vector<std::string> MpirunCommand(int ranks, const Machines& machines,
                                       const std::string& program,
                                       const std::vector<std::string>& arguments,
                                       const std::vector<std::string>& variables);

// Throws Error (kUsage) if there is no mpirun, or if the limits of this process are too low for it.
void RequireMpirun();

// Makes mpirun and its ranks keep their temporary files in `folder`, so that no file is left if they are killed. If
// `folder` is empty, they use their own default places.
void KeepMpirunsFilesIn(const std::string& folder);

// Says in words which limits and environment variables of this process may cause mpirun to fail; empty if none is known
// to. Variables that KeepMpirunsFilesIn() has set do not count.
std::string WhatMpirunMayStumbleOver();

}  // namespace lockstep
