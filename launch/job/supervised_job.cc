#include "launch/job/supervised_job.h"

#include <cstdlib>
#include <optional>
#include <random>

#include "base/error.h"
#include "base/say.h"
#include "ckpt/run_lock.h"
#include "launch/job/restarts.h"

namespace lockstep {

int RunSupervised(const SupervisedJob& job) {
  Supervisor supervisor;
  Restarts restarts(job.restarts);
  Supervisor::Program program = job.program;
  while (true) {
    const std::string name = fmt::format("{:08x}", std::random_device()());
    setenv(kJobName, name.c_str(), 1);
    setenv(kJobRestarts, std::to_string(restarts.count()).c_str(), 1);
    const auto has_met = [&] { return !job.run_dir.empty() && RunLock::IsOf(job.run_dir, name); };
    if (job.on_other_machines) {
      program.is_held = [&] { return has_met() && RunLock::IsHeld(job.run_dir); };
    }
    Supervisor::End end = supervisor.Run(program, has_met);
    if (!end.error.empty()) PrintError(end.error);
    constexpr int kOfMpirun = 1;  // no rank ends with it
    const bool no_start =
        !end.by_user && !end.rank_killed && !job.run_dir.empty() && !has_met() &&
        (end.status == kOfMpirun || end.status == static_cast<int>(ExitStatus::kPeer));
    if (no_start && job.why_no_start) {
      PrintError(job.why_no_start());
      end.status = static_cast<int>(ExitStatus::kPeer);
    }
    if (end.status == 0 || end.by_user || job.restarts == 0 ||
        end.status == static_cast<int>(ExitStatus::kStopped) ||
        end.status == static_cast<int>(ExitStatus::kInterrupted)) {
      return end.status;
    }
    const int64_t step = has_met() ? FurthestStep(job.run_dir) : 0;
    const Restarts::Decision decision = restarts.After(end.status, step);
    const std::string failed =
        fmt::format("the job failed with status {} {}", end.status,
                    step > 0 ? fmt::format("at step {}", step) : "before its first step");
    if (!decision.again) {
      PrintError(fmt::format("{}; {}", failed, decision.why));
      return end.status;
    }
    Warn(fmt::format("{}; restart {} of {} follows in {:.0f} s", failed, restarts.count(),
                     job.restarts, decision.delay_s));
    if (const auto ended = supervisor.Pause(decision.delay_s)) return ended->status;
    if (!job.what_is_left) continue;
    const std::optional<Supervisor::Program> left = job.what_is_left();
    // What came meanwhile.
    if (const auto ended = supervisor.Pause(0)) return ended->status;
    if (!left) {
      PrintError(fmt::format("{}; not started again, as no machine or GPU is left", failed));
      return end.status;
    }
    program = *left;
  }
}

}  // namespace lockstep
