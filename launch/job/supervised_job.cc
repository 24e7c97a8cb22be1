#include "launch/job/supervised_job.h"

#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <optional>
#include <random>

#include "base/clock.h"
#include "base/error.h"
#include "base/say.h"
#include "ckpt/checkpoint.h"
#include "ckpt/run_lock.h"
#include "launch/job/restarts.h"

namespace lockstep {

Error LostOutput(int number) {
  return CheckpointError("standard output cannot be written: {}", std::strerror(number));
}

int RunSupervised(const SupervisedJob& job) {
  Supervisor supervisor;
  Restarts restarts(job.restarts);
  Supervisor::Program program = job.program;
  setenv(kJobHasBegun, "no", 1);
  while (true) {
    const std::string name = fmt::format("{:08x}", std::random_device()());
    setenv(kJobName, name.c_str(), 1);
    setenv(kJobRestarts, std::to_string(restarts.count()).c_str(), 1);
    const auto has_begun = [&] { return !job.run_dir.empty() && RunLock::IsOf(job.run_dir, name); };
    if (job.on_other_machines) {
      program.is_held = [&] { return has_begun() && RunLock::IsHeld(job.run_dir); };
    }
    Supervisor::End end = supervisor.Run(program);
    const bool no_start = !end.by_user && !end.rank_killed && !job.run_dir.empty() && !end.met &&
                          end.status == static_cast<int>(ExitStatus::kPeer);
    if (no_start && job.why_no_start) end.error = job.why_no_start();
    if (!end.error.empty()) PrintError(end.error);
    if (end.status == 0 && job.prints_result && end.output_error != 0) {
      const Error lost = LostOutput(end.output_error);
      PrintError(lost.what());
      return static_cast<int>(lost.status());
    }
    if (end.status == 0 || end.by_user || job.restarts == 0 ||
        end.status == static_cast<int>(ExitStatus::kStopped) ||
        end.status == static_cast<int>(ExitStatus::kInterrupted)) {
      return end.status;
    }
    int64_t step = 0;
    if (has_begun()) {
      setenv(kJobHasBegun, kYes, 1);
      step = FurthestStep(job.run_dir);
    }
    const Restarts::Decision decision = restarts.After(end.status, step);
    const std::string failed =
        fmt::format("the job failed with status {} {}", end.status,
                    step > 0 ? fmt::format("at step {}", step) : "before its first step");
    if (!decision.again) {
      PrintError(fmt::format("{}; {}", failed, decision.why));
      return end.status;
    }
    if (has_begun() && access(StopPath(job.run_dir).c_str(), F_OK) == 0) {
      unlink(StopPath(job.run_dir).c_str());
      Warn(fmt::format("{}; its user's STOP is there: it is not started again", failed));
      return static_cast<int>(ExitStatus::kInterrupted);
    }
    if (SecondsSinceBoot() + decision.delay_s > job.end_by_s) {
      Warn(fmt::format("{}; its time is over: the same command goes on another time", failed));
      return static_cast<int>(ExitStatus::kStopped);
    }
    Warn(fmt::format("{}; restart {} of {} follows in {:.0f} s", failed, restarts.count(),
                     job.restarts, decision.delay_s));
    if (const auto ended = supervisor.Pause(decision.delay_s)) return ended->status;
    if (!job.what_is_left) continue;
    const std::optional<Supervisor::Program> left = job.what_is_left();
    // A signal may have come while what_is_left() ran.
    if (const auto ended = supervisor.Pause(0)) return ended->status;
    if (!left) {
      PrintError(fmt::format("{}; not started again, as no machine or GPU is left", failed));
      return end.status;
    }
    program = *left;
  }
}

}  // namespace lockstep
