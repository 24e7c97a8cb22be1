#include "launch/cli/slurm.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <map>
#include <vector>

#include "base/error.h"
#include "base/say.h"
#include "launch/job/slurm_script.h"
#include "trainer/config/config.h"

namespace lockstep {

struct SlurmCommand::Line {
  CLI::App* slurm = nullptr;
  SlurmJob job;
  std::vector<std::string> assignments;
  std::string launcher = "mpirun";
};

SlurmCommand::SlurmCommand(CLI::App& app) : line_(std::make_unique<Line>()) {
  Line& line = *line_;
  SlurmJob& job = line.job;
  line.slurm =
      app.add_subcommand("slurm", "print a Slurm job script that trains and goes on by itself");
  line.slurm->add_option("CONFIG", job.configs, "config file; several make an array job")
      ->required();
  line.slurm->add_option("--nodes", job.nodes)
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
  line.slurm->add_option("--gpus", job.gpus, "of each node; 0: train on CPUs")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  line.slurm
      ->add_option("--ranks-per-node", job.ranks_per_node, "without it one for each GPU, or one")
      ->check(CLI::Range(1, 1024));
  line.slurm->add_option("--time", job.time, "limit, as sbatch has it: 4:00:00")->required();
  line.slurm
      ->add_option("--warning", job.warning_s,
                   "seconds before the limit at which the run is stopped")
      ->check(CLI::Range(1, 65'535))
      ->capture_default_str();
  line.slurm->add_option("--launcher", line.launcher, "what starts the ranks: mpirun or srun")
      ->check(CLI::IsMember({"mpirun", "srun"}))
      ->capture_default_str();
  line.slurm
      ->add_option("--restarts", job.restarts,
                   "of a job that failed, before its time is over (mpirun)")
      ->check(CLI::Range(0, 1'000'000))
      ->capture_default_str();
  line.slurm->add_option("--set", line.assignments, "for train: override a field of the config")
      ->allow_extra_args(false)
      ->take_all();
  line.slurm
      ->add_option("--sbatch", job.sbatch, "a further option of sbatch: --sbatch=--partition=gpu")
      ->allow_extra_args(false)
      ->take_all();
}

SlurmCommand::~SlurmCommand() = default;

bool SlurmCommand::parsed() const { return line_->slurm->parsed(); }

void SlurmCommand::Run(const std::string& program) {
  SlurmJob& job = line_->job;
  std::map<std::string, std::string> configs;  // by run folder
  for (const std::string& config : job.configs) {
    const std::string run_dir = LoadConfig(config, line_->assignments).run_dir();
    const auto [other, is_new] = configs.try_emplace(run_dir, config);
    if (!is_new) {
      throw UsageError("{} and {} train in the same folder, {}: give each a run_dir of its own",
                       other->second, config, run_dir);
    }
  }
  for (const std::string& assignment : line_->assignments) {
    job.words.insert(job.words.end(), {"--set", assignment});
  }
  job.program = program;
  job.name = std::filesystem::path(job.configs.front()).stem();
  job.by_srun = line_->launcher == "srun";
  Print("{}", SlurmScript(job));
}

}  // namespace lockstep
