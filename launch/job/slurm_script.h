// Writes a Slurm job script. The script trains, gets a warning from Slurm before the job's time is over, and submits
// itself again.
//
// (tests/slurm_test.py runs such a script in a real Slurm)
#pragma once

#include <string>
#include <vector>

namespace lockstep {

struct SlurmJob {
  std::string program;               // with its path
  std::vector<std::string> configs;  // one, or an array job's
  std::vector<std::string> words;    // of train's command line behind the config
  std::string name;
  int nodes = 1;
  int gpus = 1;                     // of each node
  int ranks_per_node = 0;           // 0: one for each GPU, or one
  std::string time;                 // as sbatch --time has it
  int warning_s = 300;              // before the time is over
  int restarts = 3;                 // within the job's time
  bool by_srun = false;             // which starts the ranks, in place of mpirun
  std::vector<std::string> sbatch;  // further options
};

std::string SlurmScript(const SlurmJob& job);

}  // namespace lockstep
