#include "launch/cli/runs/ask_job.h"

#include <chrono>
#include <filesystem>
#include <thread>

#include "base/error.h"
#include "base/files/atomic_file.h"
#include "ckpt/run_lock.h"

namespace lockstep {

void AskJob(const std::string& run_dir, const std::string& request, std::string_view text,
            const std::string& hint) {
  constexpr std::chrono::milliseconds kInterval{50};
  if (!RunLock::IsHeld(run_dir)) {
    throw UsageError("{}: no job trains in it now, or its file system has no locks{}", run_dir,
                     hint);
  }
  WriteFileAtomically(request, text);
  while (std::filesystem::exists(request) && RunLock::IsHeld(run_dir)) {
    std::this_thread::sleep_for(kInterval);
  }
  std::filesystem::remove(request);
}

}  // namespace lockstep
