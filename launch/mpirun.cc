#include "launch/mpirun.h"

#include <unistd.h>

#include <cstdlib>
#include <sstream>

#include "base/error.h"

namespace lockstep {
Machines MachinesHere() {
  const char* nodes = std::getenv("SLURM_JOB_NUM_NODES");
  return nodes != nullptr && std::atoi(nodes) > 1 ? Machines::kSlurmJob : Machines::kThis;
}

std::vector<std::string> MpirunCommand(int ranks, Machines machines, const std::string& program,
                                       const std::vector<std::string>& arguments) {
  const bool one_machine = machines == Machines::kThis;
  std::vector<std::string> command;
  const auto add = [&](std::initializer_list<std::string> words) {
    command.insert(command.end(), words);
  };
  // As variables, because Open MPI 5 stumbles over options that were 4's alone. Only errors of our own, not mpirun's
  // pages about them; one machine needs no network and no ssh; shared memory without process_vm_readv works in
  // containers.
  add({"env", "OMPI_MCA_orte_execute_quiet=1"});
  if (one_machine) add({"OMPI_MCA_plm=isolated"});
  add({"OMPI_MCA_pml=ob1", one_machine ? "OMPI_MCA_btl=self,vader" : "OMPI_MCA_btl=self,vader,tcp",
       "OMPI_MCA_btl_vader_single_copy_mechanism=none"});
  add({"mpirun", "-n", std::to_string(ranks)});
  if (geteuid() == 0) add({"--allow-run-as-root"});
  if (one_machine) {
    // mpirun counts cores, not hardware threads, and refuses more ranks than that without a word.
    add({"--oversubscribe"});
  } else {
    // Machine by machine, as many on each as the job has tasks there.
    add({"--map-by", "slot"});
  }
  // With two ranks or fewer mpirun binds each to one core, which its loader's threads would share.
  add({"--bind-to", "none"});
  command.push_back(program);
  command.insert(command.end(), arguments.begin(), arguments.end());
  return command;
}

void RequireMpirun() {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path != nullptr ? path : "");
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (access((folder + "/mpirun").c_str(), X_OK) == 0) return;
  }
  throw UsageError("mpirun is not installed: apt-get install openmpi-bin, or leave out -n");
}

void KeepMpirunsFilesIn(const std::string& folder) {
  if (folder.empty()) return;
  // Of Open MPI 4 and 5, and of its ranks' shared memory.
  for (const char* variable :
       {"OMPI_MCA_orte_tmpdir_base", "PRTE_MCA_prte_tmpdir_base",
        "OMPI_MCA_btl_vader_backing_directory", "OMPI_MCA_btl_sm_backing_directory"}) {
    setenv(variable, folder.c_str(), /*overwrite=*/0);
  }
}

}  // namespace lockstep
