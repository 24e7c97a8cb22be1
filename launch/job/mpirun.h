// Finds Open MPI's mpirun, and builds the command line and the environment that start a job with it.
#pragma once

#include <string>
#include <vector>

namespace lockstep {

// That a job's ranks run on.
struct Machines {
  enum class Kind {
    kThis,
    kSlurmJob,  // those of the Slurm job that this process belongs to
    kListed,    // through ssh
  };
  Kind kind = Kind::kThis;
  std::string hosts;  // kListed: "node1:8,node2:8", with the ranks of each

  bool one() const { return kind == Kind::kThis; }
};

// Those in `hosts`, or where it is empty a Slurm job's, where this process is part of one of several machines.
Machines MachinesFor(const std::string& hosts);

// The command that runs `program` with `arguments` as `ranks` ranks: with the flags that it needs in a container, as
// root, without ssh, and with more ranks than cores, where this is so; of kListed with the network that connects the
// machines, and so that it notices where one is gone. Ranks on other machines get this process's
// environment variables that begin with NCCL_, and `variables`, which may not be set yet.
std::vector<std::string> MpirunCommand(int ranks, const Machines& machines,
                                       const std::string& program,
                                       const std::vector<std::string>& arguments,
                                       const std::vector<std::string>& variables);

// Throws Error (kUsage) where there is none, or this process's limits are too low for it.
void RequireMpirun();

// Has mpirun and its ranks keep their temporary files in `folder`, so that none is left where they are killed;
// empty: in places of their own.
void KeepMpirunsFilesIn(const std::string& folder);

// What of this process's limits and environment mpirun may stumble over, in words; empty: nothing is known to. Not what
// KeepMpirunsFilesIn() has set.
std::string WhatMpirunMayStumbleOver();

}  // namespace lockstep
