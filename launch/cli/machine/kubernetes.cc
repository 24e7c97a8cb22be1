// lockstep kubernetes: prints a manifest for Kubernetes. It trains on the pods of Kubeflow's mpi-operator, and goes on
// when Kubernetes has taken one away.
#include <filesystem>
#include <vector>

#include "base/say.h"
#include "config/config.h"
#include "launch/cli/command/commands.h"
#include "launch/job/kubernetes_manifest.h"

namespace lockstep {
namespace {

class KubernetesCommand final : public LocalCommand {
 public:
  explicit KubernetesCommand(CLI::App& app)
      : LocalCommand(app, "kubernetes",
                     "print a Kubernetes manifest that trains and goes on by itself") {
    options().Add("CONFIG", config_, "config file, of which the manifest holds a copy").Required();
    options().Add("--image", job_.image, "container image with lockstep").Required();
    options()
        .Add("--claim", job_.claims,
             "volume of all pods, for data and runs: --claim team-disk:/data mounts that "
             "PersistentVolumeClaim; commands start in the first one's folder")
        .OneEach();
    options().Add("--workers", job_.workers, "pods that train").Within(1, 10'000).ShowDefault();
    options()
        .Add("--gpus", job_.gpus, "of each worker; 0: train on CPUs")
        .Within(0, 1024)
        .ShowDefault();
    options()
        .Add("--ranks-per-worker", job_.ranks_per_worker, "without it one for each GPU, or one")
        .Within(1, 1024);
    options().Add("--cpus", job_.cpus, "cores of each worker: 16, or 500m");
    options().Add("--memory", job_.memory, "memory of each worker: 64Gi");
    options().Add("--name", job_.name, "of the job; without it that of the config");
    options().Add("--namespace", job_.name_space, "without it that of kubectl's context");
    options()
        .Add("--program", job_.program, "program in the image, a name or a path")
        .ShowDefault();
    options()
        .Add("--restarts", job_.restarts, "of a job that failed, by the launcher")
        .Within(0, 1'000'000)
        .ShowDefault();
    options()
        .Add("--launcher-restarts", job_.launcher_restarts,
             "of a launcher that failed or was taken away, by Kubernetes")
        .Within(0, 1'000'000)
        .ShowDefault();
    options()
        .Add("--grace", job_.grace_s, "seconds in which the run is saved when a pod is taken away")
        .Within(1, 86'400)
        .ShowDefault();
    options().Add("--set", assignments_, "for train: override a field of the config").OneEach();
  }

 private:
  ExitStatus RunHere(const Invocation&) override {
    const std::filesystem::path path = config_;
    job_.config_text = ReadConfigText(config_);
    job_.run_dir = LoadConfigForElsewhere(config_, job_.config_text, assignments_).run_dir();
    job_.config = path.filename();
    if (job_.name.empty()) job_.name = KubernetesName(path.stem());
    for (const std::string& assignment : assignments_) {
      job_.words.insert(job_.words.end(), {"--set", assignment});
    }
    Print("{}", KubernetesManifest(job_));
    return ExitStatus::kDone;
  }

  KubernetesJob job_{.program = "lockstep"};
  std::string config_;
  std::vector<std::string> assignments_;
};

}  // namespace

std::unique_ptr<Command> NewKubernetesCommand(CLI::App& app) {
  return std::make_unique<KubernetesCommand>(app);
}

}  // namespace lockstep
