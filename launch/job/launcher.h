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
  kNone,    // a process that is alone, or that starts others
  kMpirun,  // Open MPI's, 4 or 5
  kSrun,    // Slurm's, through PMIx
};

// `variable`: as std::getenv. Under mpirun within a Slurm job Slurm's variables are those of the job's first process,
// so mpirun's are looked for first. Throws Error (kUsage).
Launcher FindLauncher(const std::function<const char*(const char*)>& variable);

// How many ranks of the job are on this machine, as the launcher says; 1: it does not.
int LocalRanks(const std::function<const char*(const char*)>& variable);

// Whether mpirun says that all of the job's ranks are.
bool AreOnOneMachine(const std::function<const char*(const char*)>& variable);

}  // namespace lockstep
