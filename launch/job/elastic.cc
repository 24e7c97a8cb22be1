#include "launch/job/elastic.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <sstream>
#include <thread>

#include "launch/job/mpirun.h"
#include "launch/machine/child_process.h"
#include "launch/machine/findings.h"
#include "launch/machine/gpu_checks.h"
#include "observe/machine/nvml.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

// The time limit for CUDA to initialise on a GPU, or for a machine to answer.
constexpr double kLimit = 30;  // seconds

std::vector<std::string> Split(const std::string& list) {
  std::vector<std::string> parts;
  std::istringstream text(list);
  for (std::string part; std::getline(text, part, ',');) parts.push_back(part);
  return parts;
}

}  // namespace

std::vector<size_t> WhichSucceed(const std::vector<std::vector<std::string>>& commands,
                                 double limit_s) {
  sigset_t none;
  sigemptyset(&none);
  std::vector<std::unique_ptr<ChildProcess>> children;
  for (const auto& command : commands) {
    children.push_back(
        std::make_unique<ChildProcess>(command, ChildProcess::Group::kOwn, /*output=*/-1, none));
  }
  const auto until = Clock::now() + std::chrono::duration<double>(limit_s);
  const auto running = [](const auto& child) { return !child->Poll(); };
  while (std::any_of(children.begin(), children.end(), running) && Clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  std::vector<size_t> succeeded;
  for (size_t i = 0; i < children.size(); ++i) {
    const auto end = children[i]->Poll();
    if (end && end->signal == 0 && end->code == 0) succeeded.push_back(i);
    // A child process that hangs in a driver does not end even after SIGKILL, so ~ChildProcess() must not wait for its
    // end.
    if (!end) children[i]->Abandon();
  }
  return succeeded;
}

std::vector<std::string> GpusHere() {
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  std::vector<std::string> gpus;
  if (visible == nullptr) {
    for (const DriverGpu& gpu : GpusOfDriver()) gpus.push_back(gpu.uuid);
    return gpus;
  }
  gpus = Split(visible);
  // CUDA ignores the first entry of CUDA_VISIBLE_DEVICES that names no GPU, and all entries after it.
  const auto is_none = [](const std::string& gpu) {
    const bool is_number = !gpu.empty() && gpu.find_first_not_of("0123456789") == std::string::npos;
    return !is_number && !gpu.starts_with("GPU-") && !gpu.starts_with("MIG-");
  };
  gpus.erase(std::ranges::find_if(gpus, is_none), gpus.end());
  return gpus;
}

std::vector<std::string> WorkingGpus(const std::vector<std::string>& gpus,
                                     const std::string& program) {
  std::vector<std::vector<std::string>> commands;
  for (const std::string& gpu : gpus) {
    commands.push_back({"env", "CUDA_VISIBLE_DEVICES=" + gpu, program, kProbeGpu});
  }
  std::vector<std::string> working;
  for (const size_t i : WhichSucceed(commands, kLimit)) working.push_back(gpus[i]);
  return working;
}

std::string ReachableHosts(const std::string& hosts) {
  const std::vector<std::string> all = Split(hosts);
  std::vector<std::vector<std::string>> commands;
  for (const std::string& host : all) {
    commands.push_back(MpirunCommand(1, MachinesFor(host), "true", {}, {}));
  }
  std::string reachable;
  for (const size_t i : WhichSucceed(commands, kLimit)) {
    reachable += (reachable.empty() ? "" : ",") + all[i];
  }
  return reachable;
}

std::string WhyNoStart(const std::string& hosts) {
  const std::string reachable = "," + ReachableHosts(hosts) + ",";
  std::vector<std::string> lost;
  for (const std::string& host : Split(hosts)) {
    if (reachable.find("," + host + ",") == std::string::npos) {
      lost.push_back(host.substr(0, host.find(':')));
    }
  }
  if (!lost.empty()) {
    return fmt::format(
        "no process can be started on {}: ssh {} true must work without a question, and orted "
        "(Open MPI 5: prted) be in the PATH there",
        fmt::join(lost, ", "), lost.front());
  }
  return fmt::format(
      "the ranks on {} did not find each other: is a firewall between them, or an interface that "
      "leads nowhere (docs/clusters.md)?",
      hosts);
}

int ProbeGpu() {
  const std::vector<Finding> findings = CheckTransfers(at::Device(at::kCUDA, 0), nullptr);
  const bool wrong = std::any_of(findings.begin(), findings.end(), [](const Finding& finding) {
    return finding.state == State::kFail;
  });
  return wrong ? 1 : 0;
}

}  // namespace lockstep
