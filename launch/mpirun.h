// Open MPI's mpirun.
#pragma once

#include <string>
#include <vector>

namespace lockstep {

enum class Machines {
  kThis,
  kSlurmJob,  // those of the Slurm job that this process belongs to
};

// A Slurm job's, where this process is part of one of several machines.
Machines MachinesHere();

// The command that runs `program` with `arguments` as `ranks` ranks: with the flags that it needs in a container, as
// root, without ssh, and with more ranks than cores, where this is so.
std::vector<std::string> MpirunCommand(int ranks, Machines machines, const std::string& program,
                                       const std::vector<std::string>& arguments);

// Throws Error (kUsage) where there is none.
void RequireMpirun();

// Has mpirun and its ranks keep their temporary files in `folder`, so that none is left where they are killed;
// empty: in places of their own.
void KeepMpirunsFilesIn(const std::string& folder);

}  // namespace lockstep
