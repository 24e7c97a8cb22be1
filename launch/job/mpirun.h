// Finds Open MPI's mpirun, builds the command line and the environment that start a job with mpirun, and reads what
// mpirun says of a lost machine.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// The machines on which a job's ranks run.
struct Machines {
  enum class Kind {
    kThis,
    kSlurmJob,  // the machines of the Slurm job to which this process belongs
    kListed,    // the machines of `hosts`; mpirun reaches them through ssh
  };
  Kind kind = Kind::kThis;
  std::string hosts;  // for kListed: "node1:8,node2:8", each machine with its number of ranks
  // For kListed: the path of this program, through which mpirun runs ssh (launch/job/over_ssh.h); empty: mpirun runs ssh
  // itself.
  std::string connector;

  bool one() const { return kind == Kind::kThis; }
};

// Returns the machines in `hosts`. If `hosts` is empty, returns the machines of the Slurm job to which this process
// belongs, if that job has several machines, and otherwise this machine.
Machines MachinesFor(const std::string& hosts);

// Returns the command that runs `program` with `arguments` as `ranks` ranks. The command has the flags that mpirun
// needs in a container, as root, without ssh, or with more ranks than cores. For kListed the command also names the
// network that connects the machines, makes mpirun notice a machine that is lost, and passes environment variables to
// the ranks on other machines: those that begin with NCCL_, and those named in `variables`. The caller may set the
// latter variables after this call.
std::vector<std::string> MpirunCommand(int ranks, const Machines& machines,
                                       const std::string& program,
                                       const std::vector<std::string>& arguments,
                                       const std::vector<std::string>& variables);

// Throws Error (kUsage) if there is no mpirun, or if the resource limits of this process are too low for mpirun.
void RequireMpirun();

// Makes mpirun and its ranks keep their temporary files in `folder`, so that the caller can remove all of these files
// after mpirun and the ranks were killed. If `folder` is empty, does nothing, and mpirun and its ranks use their
// default folders.
void KeepMpirunsFilesIn(const std::string& folder);

// Returns a text that names the limits and environment variables of this process that may cause mpirun to fail; an
// empty string if there are none. Leaves out the variables that KeepMpirunsFilesIn() sets.
std::string WhatMpirunMayStumbleOver();

// Returns the machine whose daemon mpirun has lost, as `said`, a text of mpirun, names it; an empty string if the text
// says nothing of a lost daemon.
std::string MachineLostIn(std::string_view said);

}  // namespace lockstep
