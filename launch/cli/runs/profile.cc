// lockstep profile: asks the job that trains in a run folder to profile some steps, and prints the kernels that take
// the most time; or prints the kernels of an existing profile or trace.
//
// what can fail -> what the caller sees -> the test that shows it (tests/profile_test.py)
//   no job trains in the folder -> Error (kUsage), which says how to print an earlier profile
//     -> test_a_run_that_has_ended
//   another command waits for a profile of the job -> Error (kUsage) -> test_two_requests
//   the job ends before the steps are made -> Error (kCheckpoint) -> test_a_run_that_ends_meanwhile
#include <fmt/format.h>

#include <filesystem>
#include <map>

#include "base/error.h"
#include "base/say.h"
#include "ckpt/run_lock.h"
#include "launch/cli/command/commands.h"
#include "launch/cli/runs/ask_job.h"
#include "observe/history/training_folder.h"
#include "observe/profile/profile_files.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr size_t kRows = 10;

// Returns a map from the step of each of the run's profiles to the time at which the profile was made.
std::map<int64_t, double> TimesOf(const std::string& run_dir) {
  std::map<int64_t, double> times;
  for (const int64_t step : ProfilesOf(run_dir)) {
    try {
      times[step] = ReadRunProfile(fmt::format("{}@{}", run_dir, step)).time;
    } catch (const Error&) {
      times[step] = 0;  // stands for the time of a profile that cannot be read
    }
  }
  return times;
}

// Asks the job that trains in `run_dir` for a profile of `steps` steps, waits until the profile is written, and returns
// the profile.
RunProfile AskForProfile(const std::string& run_dir, int64_t steps) {
  RequireRunFolder(run_dir);
  const std::map<int64_t, double> before = TimesOf(run_dir);
  const std::string request = ProfileRequestPath(run_dir);
  if (fs::exists(request) && RunLock::IsHeld(run_dir)) {
    throw UsageError(
        "{}: a profile is asked for already: wait until it is written, or remove {} if nobody "
        "waits "
        "for it",
        run_dir, request);
  }
  AskJobs({run_dir}, &ProfileRequestPath, fmt::format("{}\n", steps),
          before.empty() ? std::string()
                         : fmt::format(": lockstep profile {}@{} prints its last profile", run_dir,
                                       before.rbegin()->first));
  // A job that has restarted from an earlier checkpoint may write a profile of a step that has a profile already, or of
  // an earlier step. The new profile is therefore found by comparing the times of all profiles with those in `before`.
  for (const auto& [step, time] : TimesOf(run_dir)) {
    const auto known = before.find(step);
    if (known == before.end() || known->second != time) {
      return ReadRunProfile(fmt::format("{}@{}", run_dir, step));
    }
  }
  throw CheckpointError("{}: there is no new profile: {}/log.jsonl says why", run_dir, run_dir);
}

class ProfileCommand final : public LocalCommand {
 public:
  explicit ProfileCommand(CLI::App& app)
      : LocalCommand(app, "profile",
                     "have the job that trains in a run folder profile some steps, and print the "
                     "heaviest kernels") {
    options()
        .Add("RUN", name_, "run folder; or RUN@STEP or a trace's file: prints that profile")
        .Required();
    options().Add("--steps", steps_, "steps to profile").Within(1, 100).ShowDefault();
    options().Add("--json", json_, "print the profile as one line of JSON");
  }

 private:
  ExitStatus RunHere(const Invocation&) override {
    const RunProfile profile =
        NamesProfile(name_) ? ReadRunProfile(name_) : AskForProfile(name_, steps_);
    if (json_) {
      Print("{}\n", JsonOf(profile).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
      return ExitStatus::kDone;
    }
    for (const RankProfile& rank : profile.ranks) Print("{}", TableOf(rank, kRows));
    for (const std::string& sentence : profile.slower) Print("slower: {}\n", sentence);
    if (profile.step > 0 && !NamesProfile(name_)) {
      Print("traces for ui.perfetto.dev: {}\n", TraceFolder(name_, profile.step));
    }
    return ExitStatus::kDone;
  }

  std::string name_;
  int64_t steps_ = 5;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> NewProfileCommand(CLI::App& app) {
  return std::make_unique<ProfileCommand>(app);
}

}  // namespace lockstep
