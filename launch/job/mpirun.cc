#include "launch/job/mpirun.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "launch/job/hosts.h"
#include "launch/machine/child_process.h"

namespace lockstep {

namespace {

// The variables that choose the folders of Open MPI 4 and 5, and of their ranks' shared memory.
constexpr std::string_view kFolders[] = {"OMPI_MCA_orte_tmpdir_base", "PRTE_MCA_prte_tmpdir_base",
                                         "OMPI_MCA_btl_vader_backing_directory",
                                         "OMPI_MCA_btl_sm_backing_directory"};

// Adds settings of the network for --hosts, unless the user has set them.
void AddNetworkSettings(const std::string& hosts, std::vector<std::string>& command) {
  // Open MPI takes every interface that is up for one that leads to the others.
  if (std::getenv("OMPI_MCA_btl_tcp_if_include") == nullptr &&
      std::getenv("OMPI_MCA_btl_tcp_if_exclude") == nullptr) {
    const std::string network = NetworkBetween(ParseHosts(hosts));
    if (!network.empty()) command.push_back("OMPI_MCA_btl_tcp_if_include=" + network);
  }
  // ssh asks nobody that would see it.
  if (std::getenv("OMPI_MCA_plm_rsh_agent") == nullptr &&
      std::getenv("OMPI_MCA_plm_rsh_args") == nullptr) {
    command.push_back("OMPI_MCA_plm_rsh_args=-o BatchMode=yes -o ConnectTimeout=10");
  }
  // mpirun waits for a machine that is gone until TCP gives up, a quarter of an hour.
  for (const auto& [name, value] : {std::pair("OMPI_MCA_oob_tcp_keepalive_time", "10"),
                                    {"OMPI_MCA_oob_tcp_keepalive_intvl", "3"},
                                    {"OMPI_MCA_oob_tcp_keepalive_probes", "3"}}) {
    if (std::getenv(name) == nullptr) command.push_back(fmt::format("{}={}", name, value));
  }
}

}  // namespace

Machines MachinesFor(const std::string& hosts) {
  if (!hosts.empty()) return {.kind = Machines::Kind::kListed, .hosts = hosts};
  const char* nodes = std::getenv("SLURM_JOB_NUM_NODES");
  return {.kind = nodes != nullptr && std::atoi(nodes) > 1 ? Machines::Kind::kSlurmJob
                                                           : Machines::Kind::kThis};
}

std::vector<std::string> MpirunCommand(int ranks, const Machines& machines,
                                       const std::string& program,
                                       const std::vector<std::string>& arguments,
                                       const std::vector<std::string>& variables) {
  std::vector<std::string> command;
  const auto add = [&](std::initializer_list<std::string> words) {
    command.insert(command.end(), words);
  };
  // The settings are variables, because Open MPI 5 stumbles over options that were 4's alone. mpirun prints no pages
  // about our own errors; one machine needs no network and no ssh; shared memory without process_vm_readv works in
  // containers.
  add({"env", "OMPI_MCA_orte_execute_quiet=1"});
  // Nothing of a job of one machine listens where others could reach it.
  if (machines.one()) add({"OMPI_MCA_plm=isolated", "OMPI_MCA_oob_tcp_if_include=lo"});
  add({"OMPI_MCA_pml=ob1",
       machines.one() ? "OMPI_MCA_btl=self,vader" : "OMPI_MCA_btl=self,vader,tcp",
       "OMPI_MCA_btl_vader_single_copy_mechanism=none"});
  if (machines.kind == Machines::Kind::kListed) AddNetworkSettings(machines.hosts, command);
  add({"mpirun", "-n", std::to_string(ranks)});
  if (geteuid() == 0) add({"--allow-run-as-root"});
  if (machines.one()) {
    // mpirun counts cores, not hardware threads, and refuses more ranks than that without a word.
    add({"--oversubscribe"});
  } else {
    // Machine by machine, as many on each as there are tasks or were listed.
    add({"--map-by", "slot"});
  }
  if (machines.kind == Machines::Kind::kListed) {
    add({"--host", machines.hosts});
    for (const std::string& name : variables) add({"-x", name});
    for (char** variable = environ; *variable != nullptr; ++variable) {
      const std::string_view text = *variable;
      if (text.starts_with("NCCL_")) add({"-x", std::string(text.substr(0, text.find('=')))});
    }
  }
  // With two ranks or fewer mpirun binds each to one core, which its loader's threads would share.
  add({"--bind-to", "none"});
  command.push_back(program);
  command.insert(command.end(), arguments.begin(), arguments.end());
  return command;
}

void RequireMpirun() {
  if (FindInPath("mpirun").empty()) {
    throw UsageError("mpirun is not installed: apt-get install openmpi-bin, or leave out -n");
  }
  // It keeps what ranks share in files, of which it does not notice that they cannot be written, and waits for ever.
  constexpr rlim_t kLargestFile = rlim_t{64} << 20;
  constexpr rlim_t kFiles = 128;
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < kLargestFile) {
    throw UsageError("ulimit -f allows files of {} KiB, and mpirun needs some of {}: raise it",
                     limit.rlim_cur >> 10, kLargestFile >> 10);
  }
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < kFiles) {
    throw UsageError("ulimit -n allows {} open files, and mpirun needs {}: raise it",
                     limit.rlim_cur, kFiles);
  }
}

void KeepMpirunsFilesIn(const std::string& folder) {
  if (folder.empty()) return;
  for (const std::string_view variable : kFolders)
    setenv(variable.data(), folder.c_str(), /*overwrite=*/0);
}

std::string WhatMpirunMayStumbleOver() {
  std::vector<std::string> found;
  // mpirun opens some files for each rank.
  constexpr rlim_t kFewFiles = 1024;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < kFewFiles) {
    found.push_back(fmt::format("ulimit -n is {}", limit.rlim_cur));
  }
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    const std::string_view name = text.substr(0, text.find('='));
    if (std::ranges::find(kFolders, name) != std::end(kFolders)) continue;
    for (const char* prefix : {"OMPI_MCA_", "PMIX_MCA_", "PRTE_MCA_", "OPAL_"}) {
      if (name.starts_with(prefix)) found.emplace_back(text);
    }
  }
  return fmt::format("{}", fmt::join(found, ", "));
}

}  // namespace lockstep
