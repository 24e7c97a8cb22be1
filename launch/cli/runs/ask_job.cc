#include "launch/cli/runs/ask_job.h"

#include <chrono>
#include <filesystem>
#include <thread>

#include "base/error.h"
#include "base/files/atomic_file.h"
#include "observe/history/training_folder.h"

namespace lockstep {
namespace {

constexpr std::chrono::milliseconds kInterval{50};

}  // namespace

void FailWithoutJob(const std::string& folder, const std::string& hint) {
  throw UsageError("{}: no job trains in it now, or its file system has no locks{}", folder, hint);
}

void AskJobs(const std::vector<std::string>& folders,
             const std::function<std::string(const std::string& folder)>& request_of,
             std::string_view text, const std::string& hint) {
  for (const std::string& folder : folders) {
    if (!HasJob(folder)) FailWithoutJob(folder, hint);
  }
  for (const std::string& folder : folders) WriteFileAtomically(request_of(folder), text);
  for (const std::string& folder : folders) {
    const std::string request = request_of(folder);
    while (std::filesystem::exists(request) && HasJob(folder)) {
      std::this_thread::sleep_for(kInterval);
    }
    std::filesystem::remove(request);
  }
}

void WaitForEnd(const std::string& folder) {
  while (HasJob(folder)) std::this_thread::sleep_for(kInterval);
}

}  // namespace lockstep
