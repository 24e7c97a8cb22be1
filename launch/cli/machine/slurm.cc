// lockstep slurm: prints a Slurm job script. The script trains, and puts itself into Slurm's queue again until the
// training is done.
#include <filesystem>
#include <map>
#include <vector>

#include "base/error.h"
#include "base/say.h"
#include "config/config.h"
#include "launch/bundle/bundle.h"
#include "launch/cli/command/commands.h"
#include "launch/job/slurm_script.h"

namespace lockstep {
namespace {

class SlurmCommand final : public LocalCommand {
 public:
  explicit SlurmCommand(CLI::App& app)
      : LocalCommand(app, "slurm", "print a Slurm job script that trains and goes on by itself") {
    options().Add("CONFIG", job_.configs, "config file; several make an array job").Required();
    options().Add("--nodes", job_.nodes, "machines").Within(1, 100'000).ShowDefault();
    options()
        .Add("--gpus", job_.gpus, "of each node; 0: train on CPUs")
        .Within(0, 1024)
        .ShowDefault();
    options()
        .Add("--ranks-per-node", job_.ranks_per_node, "without it one for each GPU, or one")
        .Within(1, 1024);
    options().Add("--time", job_.time, "limit, as sbatch has it: 4:00:00").Required();
    options()
        .Add("--warning", job_.warning_s, "seconds before the limit at which the run is stopped")
        .Within(1, 65'535)
        .ShowDefault();
    options()
        .Add("--launcher", launcher_, "what starts the ranks: mpirun or srun")
        .OneOf({"mpirun", "srun"})
        .ShowDefault();
    options()
        .Add("--restarts", job_.restarts, "of a job that failed, before its time is over (mpirun)")
        .Within(0, 1'000'000)
        .ShowDefault();
    options().Add("--set", assignments_, "for train: override a field of the config").OneEach();
    options()
        .Add("--sbatch", job_.sbatch, "a further option of sbatch: --sbatch=--partition=gpu")
        .OneEach();
  }

 private:
  ExitStatus RunHere(const Invocation& invocation) override {
    std::map<std::string, std::string> configs;  // maps run folders to configs' paths
    for (const std::string& config : job_.configs) {
      const std::string run_dir = LoadConfig(config, assignments_).run_dir();
      const auto [other, is_new] = configs.try_emplace(run_dir, config);
      if (!is_new) {
        throw UsageError("{} and {} train in the same folder, {}: give each a run_dir of its own",
                         other->second, config, run_dir);
      }
    }
    for (const std::string& assignment : assignments_) {
      job_.words.insert(job_.words.end(), {"--set", assignment});
    }
    job_.program = StartScriptOr(invocation.program);
    job_.name = std::filesystem::path(job_.configs.front()).stem();
    job_.by_srun = launcher_ == "srun";
    Print("{}", SlurmScript(job_));
    return ExitStatus::kDone;
  }

  SlurmJob job_;
  std::vector<std::string> assignments_;
  std::string launcher_ = "mpirun";
};

}  // namespace

std::unique_ptr<Command> NewSlurmCommand(CLI::App& app) {
  return std::make_unique<SlurmCommand>(app);
}

}  // namespace lockstep
