#include "launch/job/over_ssh.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include "base/write_all.h"
#include "launch/machine/child_process.h"

namespace lockstep {
namespace {

constexpr std::string_view kLost = "lockstep: lost ";

// The options of ssh that have a value (ssh's manual).
constexpr std::string_view kWithValue = "BbcDEeFIiJLlmOoPpQRSWw";

}  // namespace

std::string AgentThrough(const std::string& program, const std::string& ssh) {
  if (program.find_first_of(" :") != std::string::npos || ssh.find(':') != std::string::npos) {
    return "";
  }
  return fmt::format("{} {} {}", program, kOverSsh, ssh);
}

int RunOverSsh(const std::vector<std::string>& words) {
  sigset_t none;
  sigemptyset(&none);
  ChildProcess ssh(words, ChildProcess::Group::kOurs, /*output=*/-1, none);
  const ChildProcess::End end = ssh.Wait();
  constexpr int kFailed = 255;
  const int status = end.signal != 0 ? kFailed : end.code;
  const std::string machine = MachineOf({words.begin() + 1, words.end()});
  if (status == kFailed && !machine.empty()) WriteAll(STDERR_FILENO, LostLine(machine));
  return status;
}

std::string MachineOf(const std::vector<std::string>& words) {
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (!word.starts_with('-')) return word;
    // The value of an option is the rest of its word, or the next word: -p22, -p 22, -xp 22.
    const size_t letter = word.find_first_of(kWithValue, 1);
    if (letter == word.size() - 1) ++i;
  }
  return "";
}

std::string LostLine(std::string_view machine) { return fmt::format("{}{}\n", kLost, machine); }

bool MayBeLostLine(std::string_view beginning) {
  return kLost.starts_with(beginning) || beginning.starts_with(kLost);
}

std::string MachineInLostLine(std::string_view line) {
  if (!line.starts_with(kLost) || !line.ends_with('\n')) return "";
  return std::string(line.substr(kLost.size(), line.size() - kLost.size() - 1));
}

}  // namespace lockstep
