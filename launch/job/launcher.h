// Launcher: finds out who started this process, from the environment variables that the launcher set.
//
// what can fail -> what the caller sees -> the test that shows it (launch/job/launcher_test.cc)
//   the ranks were started by MPICH's or Intel's mpiexec and cannot meet through Open MPI -> Error (kUsage)
//     -> Launcher.RefusesRanksThatCouldNotMeet; tests/start_test.py, test_mpich
//   the tasks were started by srun without PMIx and cannot find each other -> Error (kUsage)
//     -> Launcher.RefusesRanksThatCouldNotMeet
#pragma once

#include <functional>
#include <string>

namespace lockstep {

enum class Launcher {
  kNone,    // no launcher: the process runs alone, or starts ranks itself
  kMpirun,  // mpirun of Open MPI 4 or 5
  kSrun,    // Slurm's srun, with PMIx
};

// Returns the launcher that started this process. `variable` reads an environment variable like std::getenv. If mpirun
// runs inside a Slurm job, the processes that mpirun starts have the variables of both launchers, and the values of
// Slurm's variables are those of the Slurm job's first process. The function therefore looks for mpirun's variables
// first. Throws Error (kUsage).
Launcher FindLauncher(const std::function<const char*(const char*)>& variable);

// Returns how many ranks the job has according to the launcher, or 0 if the launcher does not say.
int RanksOfJob(const std::function<const char*(const char*)>& variable);

// Returns how many ranks of the job are on this machine according to the launcher, or 1 if the launcher does not say.
int LocalRanks(const std::function<const char*(const char*)>& variable);

// Returns whether mpirun says that all ranks of the job are on one machine.
bool AreOnOneMachine(const std::function<const char*(const char*)>& variable);

}  // namespace lockstep
