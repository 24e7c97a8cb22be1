// SlurmScript(): makes the text of a Slurm job script. The script trains, gets a signal from Slurm some time before the
// job's time limit, saves its state, and is then put into Slurm's queue again.
//
// tests/slurm_test.py runs such a script in a real Slurm.
#pragma once

#include <string>
#include <vector>

namespace lockstep {

struct SlurmJob {
  std::string program;               // the path of the program
  std::vector<std::string> configs;  // one config, or the configs of an array job
  std::vector<std::string> words;    // the words of `train`'s command line after the config
  std::string name;
  int nodes = 1;
  int gpus = 1;            // the number of GPUs of each node
  int ranks_per_node = 0;  // 0: one rank for each GPU, or one rank if there are no GPUs
  std::string time;        // the time limit in the format of sbatch --time
  int warning_s = 300;     // how many seconds before the time limit Slurm sends the warning signal
  int restarts = 3;        // how often a failed job is restarted within its time limit
  bool by_srun = false;    // true: srun starts the ranks; false: mpirun starts them
  std::vector<std::string> sbatch;  // further options for sbatch
};

std::string SlurmScript(const SlurmJob& job);

}  // namespace lockstep
