#include "tests/fuzz/resumable_calls.h"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <limits>
#include <new>

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

constexpr unsigned kMostSeconds = 60;
constexpr size_t kMostGroups = 1024;
constexpr int kStopped = 75;

// How far the calls are, in memory that the parent and its children share.
struct Progress {
  int64_t next = 0, failed = 0;
  std::array<int64_t, kMostGroups> ran{};  // by group
};

void Load(const std::string& path, Progress& progress) {
  std::ifstream file(path);
  if (!(file >> progress.next >> progress.failed)) return;
  for (int64_t& ran : progress.ran) file >> ran;
}

void Save(const std::string& path, const Progress& progress) {
  std::ofstream file(path + ".new");
  file << progress.next << " " << progress.failed << "\n";
  for (const int64_t ran : progress.ran) file << ran << " ";
  file.close();
  std::filesystem::rename(path + ".new", path);
}

// Notes a call that failed, for people and for the count.
void Fail(const std::string& path, Progress& progress, const std::string& line) {
  ++progress.failed;
  std::ofstream(path + ".failed", std::ios::app) << line << std::endl;
}

[[noreturn]] void Work(const Calls& calls, const CallOptions& options, Progress& progress,
                       Clock::time_point end) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);
  while (progress.next < calls.groups * calls.each && Clock::now() < end) {
    const int64_t next = progress.next++, group = next % calls.groups, number = next / calls.groups;
    alarm(kMostSeconds);
    const CallOutcome outcome = calls.call(group, number);
    alarm(0);
    if (outcome.ran) ++progress.ran.at(group);
    if (!outcome.wrong.empty()) {
      Fail(options.state, progress,
           calls.name(group) + " " + std::to_string(number) + ": " + outcome.wrong);
    }
  }
  _exit(0);
}

std::string HowItEnded(int status) {
  return WIFSIGNALED(status) ? strsignal(WTERMSIG(status))
                             : "status " + std::to_string(WEXITSTATUS(status));
}

}  // namespace

CallOptions::CallOptions(int count, char** words)
    : seconds(std::numeric_limits<int32_t>::max()), calls(0) {
  for (int i = 1; i + 1 < count; i += 2) {
    const std::string key = words[i], value = words[i + 1];
    if (key == "--state") state = value;
    if (key == "--only") only = value;
    if (key == "--seconds") seconds = std::stoll(value);
    if (key == "--calls") calls = std::stoll(value);
    if (key == "--number") number = std::stoll(value);
    if (key == "--share") {
      share = std::stoll(value);
      shares = std::stoll(value.substr(value.find('/') + 1));
    }
  }
  // A test has a folder of its own for its state.
  const char* folder = std::getenv("TEST_TMPDIR");
  if (state.empty()) state = std::string(folder != nullptr ? folder : ".") + "/calls";
}

int RunCalls(const Calls& calls, const CallOptions& options) {
  auto& progress = *new (mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0)) Progress;
  Load(options.state, progress);
  const Clock::time_point end = Clock::now() + std::chrono::seconds(options.seconds);
  const int64_t all = calls.groups * calls.each;
  while (progress.next < all && Clock::now() < end) {
    const pid_t child = fork();
    if (child == 0) Work(calls, options, progress, end);
    int status = 0;
    while (waitpid(child, &status, WNOHANG) == 0) {
      usleep(100'000);
      Save(options.state, progress);
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
      const int64_t last = progress.next - 1;
      Fail(options.state, progress,
           calls.name(last % calls.groups) + " " + std::to_string(last / calls.groups) +
               ": it ended with " + HowItEnded(status));
    }
    Save(options.state, progress);
  }
  if (progress.failed > 0) std::cout << std::ifstream(options.state + ".failed").rdbuf();
  int64_t ran = 0;
  for (int64_t group = 0; group < calls.groups; ++group) {
    ran += progress.ran.at(group);
    if (progress.next >= all && progress.ran.at(group) == 0)
      std::cout << "no call ran: " << calls.name(group) << "\n";
  }
  std::cout << progress.next << " of " << all << " calls, " << ran << " ran, " << progress.failed
            << " failed" << std::endl;
  if (progress.failed > 0) return 1;
  return progress.next < all ? kStopped : 0;
}

}  // namespace lockstep
