#include "launch/tune/trial.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/clock.h"
#include "base/files/atomic_file.h"
#include "base/files/file_descriptor.h"
#include "base/files/scratch_folder.h"
#include "launch/job/early_signals.h"
#include "launch/machine/child_process.h"
#include "trainer/config/config.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr double kPatienceForEnd_s = 5;

std::string MadeFolder(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) throw UsageError("{}: cannot be made: {}", path, error.message());
  return path;
}

FileDescriptor Opened(const std::string& path) {
  FileDescriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
  if (file.get() < 0) throw UsageError("{}: cannot be written: {}", path, std::strerror(errno));
  return file;
}

// The last line of what a program said, without what each error begins with.
std::string LastLine(const std::string& path) {
  constexpr std::string_view kName = "lockstep: error: ";
  std::ifstream file(path);
  std::string last;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty()) last = line;
  }
  return last.starts_with(kName) ? last.substr(kName.size()) : last;
}

// Returns the signal that came while the program ran; 0: none. If one comes, ends the program.
int WaitFor(ChildProcess& program, const TakenSignals& taken) {
  constexpr double kLookInterval_s = 0.2;
  int asked = 0;
  double killed_at_s = HUGE_VAL;
  while (!program.Poll()) {
    const int signal = taken.Wait(kLookInterval_s);
    if (signal != 0 && signal != SIGCHLD) {
      asked = signal;
      program.Send(SIGTERM);
      killed_at_s = SecondsSinceBoot() + kPatienceForEnd_s;
    }
    if (SecondsSinceBoot() > killed_at_s) program.Send(SIGKILL);
  }
  return asked;
}

}  // namespace

TrialRunner::TrialRunner(std::vector<std::string> command, const std::string& parent)
    : command_(std::move(command)), parent_(MadeFolder(parent)) {}

Trial TrialRunner::Run(config::Config config) {
  const ScratchFolder scratch(parent_);
  if (scratch.path().empty()) {
    throw UsageError("{}: no folder for a trial can be made in it: set run_dir", parent_);
  }
  const std::string folder = scratch.path() + "/run";
  const std::string said = scratch.path() + "/said.txt";
  config.set_run_dir(folder);
  config.clear_observe();
  config.clear_profile();
  config.clear_checkpoint();
  const std::string path = scratch.path() + "/train.pbtxt";
  WriteFileAtomically(path, PrintConfig(config));
  std::vector<std::string> words = command_;
  words.insert(words.end(), {"train", path});
  Trial trial;
  ChildProcess::End end;
  {
    const FileDescriptor nowhere = Opened("/dev/null");
    const FileDescriptor error = Opened(said);
    const double began_s = SecondsSinceBoot();
    ChildProcess program(words, ChildProcess::Group::kOwn, nowhere.get(), MaskAtStart(),
                         error.get());
    const int signal = WaitFor(program, taken_);
    end = program.Wait();
    trial.wall_s = SecondsSinceBoot() - began_s;
    if (signal != 0) {
      trial.stopped = signal == SIGINT ? ExitStatus::kInterrupted : ExitStatus::kStopped;
    }
  }
  RunLog log(folder, RunLog::Keep::kAllSteps);
  log.Read();
  trial.log = log.run();
  if (trial.stopped || (end.signal == 0 && end.code == 0)) return trial;
  const std::string line = LastLine(said);
  trial.failure = line.empty() ? fmt::format("the trial ended with status {}", end.code) : line;
  // A loss that is not finite ends a training with kUsage, after some steps.
  const bool diverged =
      end.signal == 0 && end.code == static_cast<int>(ExitStatus::kUsage) && trial.log.step > 0;
  if (diverged) return trial;
  throw Error(end.signal != 0 ? ExitStatus::kPeer : static_cast<ExitStatus>(end.code),
              fmt::format("a trial failed: {}", trial.failure));
}

}  // namespace lockstep
