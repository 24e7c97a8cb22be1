// KubernetesManifest(): makes the text of a manifest with an MPIJob of Kubeflow's mpi-operator (kubeflow.org/v2beta1).
// The job trains on the GPUs of several pods, and goes on after Kubernetes has taken a pod away.
//
// Promise: the state is saved before a pod ends that Kubernetes takes away (preemption, drained node, suspended job),
// if saving takes less than `grace_s`. The run goes on by itself as soon as a new pod has taken the pod's place.
//
// Protocol, with what the operator's controller does (its pkg/controller/mpi_job_controller.go):
//   1. the operator makes the worker pods, a launcher (a batch/v1 Job), keys for ssh, and the host file
//      /etc/mpi/hostfile with a line `NAME-worker-0.NAME.NAMESPACE.svc slots=N` for each worker
//   2. each worker runs sshd. The launcher waits until each worker can be reached, and then runs
//      `lockstep --hosts @/etc/mpi/hostfile train`. `-n` would start the ranks in the launcher's own pod: it ignores the
//      variable OMPI_MCA_orte_default_hostfile, with which the operator tells mpirun of the file
//   3. Kubernetes takes a worker away: its process 1 gets SIGTERM, lets no more connections in, sends SIGUSR2 to its
//      ranks, and waits for their end. All ranks of the job save their state and end with status 75. The launcher
//      goes back to step 2, and thereby waits for the worker's successor, which the operator makes
//   4. Kubernetes takes the launcher away: its process 1 gets SIGTERM, passes it on to lockstep, and ends with its
//      status, 75. The Job makes a new launcher, `launcher_restarts` times at most
//   5. a rank, a worker or a node dies without notice: train's own --restarts start the ranks again. If the worker is
//      not back by then, lockstep ends with 5, and the Job makes a new launcher, as in step 4
//   6. `lockstep stop RUN`: lockstep ends with 130. The launcher then ends with 0, because Kubernetes would start a Job
//      again that has failed
//
// what can fail -> what the caller sees -> the test that shows it (tests/kubernetes_test.py)
//   Kubernetes or the operator would refuse a name, a quantity or a mount -> Error (kUsage) that names the option
//     -> test_what_kubernetes_would_refuse
//   no claim holds the run folder -> Error (kUsage) -> test_the_run_folder_is_in_a_claim
//   a text is not UTF-8 -> Error (kUsage) -> test_a_text_that_yaml_cannot_hold
#pragma once

#include <string>
#include <vector>

namespace lockstep {

struct KubernetesJob {
  std::string name;
  std::string name_space;  // an empty string: that of kubectl's context
  std::string image;
  std::string program;      // the program's path or name in the image
  std::string config;       // the name of the config file, without its folder
  std::string config_text;  // the content of the config file
  std::string run_dir;      // the run folder; a relative path begins at the first claim's folder
  std::vector<std::string> words;  // the words of `train`'s command line after the config
  int workers = 1;
  int gpus = 1;              // the number of GPUs of each worker
  int ranks_per_worker = 0;  // 0: one rank for each GPU, or one rank if there are no GPUs
  std::string cpus;  // the cores of each worker, as a quantity such as 16 or 500m; empty: no limit
  std::string memory;  // the memory of each worker, such as 64Gi; empty: no limit
  // Volumes that all pods mount: the name of a PersistentVolumeClaim and a folder, such as "team-disk:/data".
  std::vector<std::string> claims;
  int restarts = 3;           // how often `train` restarts a failed job within a launcher's life
  int launcher_restarts = 6;  // how often Kubernetes makes a new launcher
  int grace_s = 300;          // how many seconds a pod has to save the state after it got SIGTERM
};

// Returns the longest beginning of `text` as a job's name that Kubernetes accepts, such as "my-net" for "My net"; an
// empty string if there is none. Room is left for what the operator adds to the names of pods.
std::string KubernetesName(const std::string& text);

// Throws Error (kUsage).
std::string KubernetesManifest(const KubernetesJob& job);

}  // namespace lockstep
