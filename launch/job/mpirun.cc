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
#include "launch/job/over_ssh.h"
#include "launch/machine/child_process.h"

namespace lockstep {

namespace {

// The environment variables that tell Open MPI 4 and 5 in which folders to keep temporary files and the shared memory
// of the ranks.
constexpr std::string_view kFolders[] = {"OMPI_MCA_orte_tmpdir_base", "PRTE_MCA_prte_tmpdir_base",
                                         "OMPI_MCA_btl_vader_backing_directory",
                                         "OMPI_MCA_btl_sm_backing_directory"};

// The environment variables with which a user says how Open MPI 4 and 5 start processes on other machines.
constexpr const char* kSshVariables[] = {"OMPI_MCA_plm_rsh_agent", "OMPI_MCA_plm_rsh_args",
                                         "PRTE_MCA_plm_ssh_agent", "PRTE_MCA_plm_ssh_args"};

// Adds the network settings for --hosts to `command`, except settings that the user has made.
void AddNetworkSettings(const Machines& machines, std::vector<std::string>& command) {
  // Without this setting Open MPI assumes that every interface that is up leads to the other machines.
  if (std::getenv("OMPI_MCA_btl_tcp_if_include") == nullptr &&
      std::getenv("OMPI_MCA_btl_tcp_if_exclude") == nullptr) {
    const std::string network = NetworkBetween(ParseHosts(machines.hosts));
    if (!network.empty()) command.push_back("OMPI_MCA_btl_tcp_if_include=" + network);
  }
  // Open MPI 4 reads the variables that begin with OMPI_MCA_, and the launcher of Open MPI 5 those with PRTE_MCA_. Each
  // ignores the other's.
  // BatchMode keeps ssh from asking for a password, which the user would not see.
  const auto is_set = [](const char* name) { return std::getenv(name) != nullptr; };
  if (std::ranges::none_of(kSshVariables, is_set)) {
    for (const char* name : {"OMPI_MCA_plm_rsh_args", "PRTE_MCA_plm_ssh_args"}) {
      command.push_back(fmt::format("{}=-o BatchMode=yes -o ConnectTimeout=10", name));
    }
  }
  if (!machines.connector.empty()) {
    constexpr char kAgent[] = "PRTE_MCA_plm_ssh_agent";
    const char* const users = std::getenv(kAgent);
    const std::string agent = AgentThrough(machines.connector, users != nullptr ? users : "ssh");
    if (!agent.empty()) command.push_back(fmt::format("{}={}", kAgent, agent));
  }
  // Without TCP keepalive mpirun waits a quarter of an hour for a machine that is gone.
  for (const auto& [setting, value] : {std::pair("time", "10"), {"intvl", "3"}, {"probes", "3"}}) {
    for (const char* series : {"OMPI", "PRTE"}) {
      const std::string name = fmt::format("{}_MCA_oob_tcp_keepalive_{}", series, setting);
      if (!is_set(name.c_str())) command.push_back(fmt::format("{}={}", name, value));
    }
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
  // The settings are environment variables, because Open MPI 5 fails at options that only Open MPI 4 has.
  // orte_execute_quiet keeps mpirun from printing long texts when a rank fails. On several machines these texts name the
  // machine that is lost, and the relay holds them back. On one machine plm=isolated and btl=self,vader avoid ssh and the
  // network. btl_vader_single_copy_mechanism=none keeps ranks from calling process_vm_readv, which containers may forbid.
  add({"env"});
  if (machines.one()) add({"OMPI_MCA_orte_execute_quiet=1"});
  // On one machine the mpirun of Open MPI 4 gives its ranks the address of the loopback interface only. It still listens
  // on all interfaces, as that of Open MPI 5 does, which ends with an error if it is given the loopback interface.
  if (machines.one()) add({"OMPI_MCA_plm=isolated", "OMPI_MCA_oob_tcp_if_include=lo"});
  add({"OMPI_MCA_pml=ob1",
       machines.one() ? "OMPI_MCA_btl=self,vader" : "OMPI_MCA_btl=self,vader,tcp",
       "OMPI_MCA_btl_vader_single_copy_mechanism=none"});
  if (machines.kind == Machines::Kind::kListed) AddNetworkSettings(machines, command);
  add({"mpirun", "-n", std::to_string(ranks)});
  if (geteuid() == 0) add({"--allow-run-as-root"});
  if (machines.one()) {
    // Without this flag mpirun refuses to start more ranks than the machine has cores (hardware threads do not count),
    // and prints no message.
    add({"--oversubscribe"});
    // With OPAL_PREFIX, which a bundle's start script sets, the mpirun of Open MPI 5.0.7 gives its ranks no other folder
    // of libraries than its own. With -x it adds its folder to them.
    if (std::getenv("OPAL_PREFIX") != nullptr && std::getenv("LD_LIBRARY_PATH") != nullptr) {
      add({"-x", "LD_LIBRARY_PATH"});
    }
  } else {
    // Ranks are placed machine by machine. Each machine gets as many ranks as Slurm has tasks on it, or as --hosts
    // lists for it.
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
  // By default, with two ranks or fewer, mpirun binds each rank to one core, which all threads of the rank's loader
  // would share.
  add({"--bind-to", "none"});
  command.push_back(program);
  command.insert(command.end(), arguments.begin(), arguments.end());
  return command;
}

void RequireMpirun() {
  if (FindInPath("mpirun").empty()) {
    throw UsageError("mpirun is not installed: apt-get install openmpi-bin, or leave out -n");
  }
  // mpirun keeps shared memory in files. If a limit keeps these files from being written, mpirun does not notice and
  // waits for ever.
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
  // mpirun opens several files for each rank, so a limit below kFewFiles may be too low for many ranks.
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

std::string MachineLostIn(std::string_view said) {
  // The words before the machine's name: "Remote daemon: [prterun-a-7@0,1] on node b" is a line of mpirun that has lost
  // a connection, and "Remote host:   b" is one of mpirun whose ssh has ended.
  constexpr std::string_view kBefore[] = {"Remote daemon:", " on node ", "Remote host:"};
  std::string_view rest = said;
  const auto skip = [&](std::string_view words) {
    const size_t at = rest.find(words);
    if (at == std::string_view::npos) return false;
    rest.remove_prefix(at + words.size());
    return true;
  };
  if (!(skip(kBefore[0]) && skip(kBefore[1]))) {
    rest = said;
    if (!skip(kBefore[2])) return "";
  }
  const size_t begin = rest.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return "";
  rest.remove_prefix(begin);
  return std::string(rest.substr(0, rest.find_first_of(" \t\n")));
}

}  // namespace lockstep
