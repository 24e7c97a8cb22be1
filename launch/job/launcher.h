// Launcher: finds out who started this process, from the environment variables that the launcher set.
//
// what can fail -> what the caller sees -> the test that shows it (launch/job/launcher_test.cc)
//   MPICH's or Intel's mpiexec, whose ranks cannot meet through Open MPI -> Error (kUsage)
//     -> Launcher.RefusesRanksThatCouldNotMeet; tests/start_test.py, test_mpich
//   srun without PMIx, whose tasks are each alone -> Error (kUsage) -> the same
#pragma once

#include <functional>
#include <string>

namespace lockstep {

enum class Launcher {
  kNone,    // the process runs alone, or it starts other processes
  kMpirun,  // mpirun of Open MPI 4 or 5
  kSrun,    // Slurm's, through PMIx
};

// Returns the launcher that started this process. `variable` reads an environment variable like std::getenv. If mpirun
// runs inside a Slurm job, its processes have both launchers' variables, and Slurm's are those of the job's first
// process; the function therefore looks for mpirun's variables first. Throws Error (kUsage).
Launcher FindLauncher(const std::function<const char*(const char*)>& variable);

// Returns how many ranks of the job are on this machine according to the launcher, or 1 if the launcher does not say.
int LocalRanks(const std::function<const char*(const char*)>& variable);

// Returns whether mpirun says that all ranks of the job are on one machine.
bool AreOnOneMachine(const std::function<const char*(const char*)>& variable);

}  // namespace lockstep
