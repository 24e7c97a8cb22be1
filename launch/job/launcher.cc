#include "launch/job/launcher.h"

#include <algorithm>
#include <cstdlib>

#include "base/error.h"

namespace lockstep {
namespace {

int Number(const char* text) { return text == nullptr ? 0 : std::atoi(text); }

}  // namespace

Launcher FindLauncher(const std::function<const char*(const char*)>& variable) {
  if (variable("OMPI_COMM_WORLD_SIZE") != nullptr) return Launcher::kMpirun;
  if (variable("PMIX_RANK") != nullptr) return Launcher::kSrun;
  const int tasks = Number(variable("SLURM_STEP_NUM_TASKS"));
  if (tasks > 1) {
    throw UsageError(
        "srun started {} tasks that cannot find each other: use srun --mpi=pmix (srun --mpi=list "
        "says "
        "whether Slurm has it), or mpirun inside the job",
        tasks);
  }
  // Hydra (the launcher of MPICH and Intel MPI) and MVAPICH set these variables.
  for (const char* size : {"PMI_SIZE", "MV2_COMM_WORLD_SIZE"}) {
    if (Number(variable(size)) > 1) {
      throw UsageError(
          "started as one of {} ranks by an mpiexec that is not Open MPI's ({} is set): use Open "
          "MPI's "
          "mpirun, or lockstep -n {}, which finds it",
          variable(size), size, variable(size));
    }
  }
  return Launcher::kNone;
}

int RanksOfJob(const std::function<const char*(const char*)>& variable) {
  switch (FindLauncher(variable)) {
    case Launcher::kNone:
      break;
    case Launcher::kMpirun:
      return Number(variable("OMPI_COMM_WORLD_SIZE"));
    case Launcher::kSrun:
      return Number(variable("SLURM_STEP_NUM_TASKS"));
  }
  return 0;
}

int LocalRanks(const std::function<const char*(const char*)>& variable) {
  const int ranks = Number(variable("OMPI_COMM_WORLD_LOCAL_SIZE"));
  return std::max({1, ranks, Number(variable("PMIX_LOCAL_SIZE"))});
}

bool AreOnOneMachine(const std::function<const char*(const char*)>& variable) {
  const int ranks = Number(variable("OMPI_COMM_WORLD_SIZE"));
  return ranks > 0 && ranks == Number(variable("OMPI_COMM_WORLD_LOCAL_SIZE"));
}

}  // namespace lockstep
