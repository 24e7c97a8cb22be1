// Calls a fuzz target that has a mutator of its own, with inputs that the mutator makes of seeds, without libFuzzer:
//
//   NAME_mutations --state FILE [--seconds N] [--inputs N]
//
// An input comes from up to 12 mutations of an empty one, which the target makes a whole file of. The inputs run in a
// child process, which is started anew after a fault. FILE keeps how many inputs were tried and which seeds failed: the
// same command goes on where the last one was stopped. The exit status is 0 if no input failed. The last line counts.
//
//   NAME_mutations --seed N     one input, in this process
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t most, unsigned seed);

namespace {

constexpr unsigned kMostSeconds = 20;

struct Shared {
  int64_t next = 0;  // the next seed
  int64_t failed = 0;
};

void Try(int64_t seed) {
  std::mt19937 random(static_cast<unsigned>(seed));
  std::vector<uint8_t> input(1 << 20);
  size_t size = 0;
  const unsigned mutations = 1 + random() % 12;
  for (unsigned i = 0; i < mutations; ++i)
    size = LLVMFuzzerCustomMutator(input.data(), size, input.size(), random());
  const std::vector<uint8_t> exact(input.begin(), input.begin() + static_cast<int64_t>(size));
  LLVMFuzzerTestOneInput(exact.data(), exact.size());
}

}  // namespace

int main(int count, char** words) {
  std::string state;
  int64_t seconds = std::numeric_limits<int32_t>::max(),
          inputs = std::numeric_limits<int64_t>::max();
  for (int i = 1; i + 1 < count; i += 2) {
    const std::string key = words[i], value = words[i + 1];
    if (key == "--state") state = value;
    if (key == "--seconds") seconds = std::stoll(value);
    if (key == "--inputs") inputs = std::stoll(value);
    if (key == "--seed") {
      Try(std::stoll(value));
      return 0;
    }
  }
  auto& shared = *new (mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS, -1, 0)) Shared;
  std::ifstream(state) >> shared.next >> shared.failed;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  bool ended = false;
  while (!ended) {
    const pid_t child = fork();
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      while (shared.next < inputs && std::chrono::steady_clock::now() < end) {
        alarm(kMostSeconds);
        Try(shared.next++);
      }
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    ended = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (!ended) {
      ++shared.failed;
      std::ofstream(state + ".failed", std::ios::app)
          << shared.next - 1 << " "
          << (WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "status") << std::endl;
    }
    std::ofstream(state + ".new") << shared.next << " " << shared.failed << "\n";
    std::filesystem::rename(state + ".new", state);
  }
  std::printf("%lld inputs, %lld failed\n", static_cast<long long>(shared.next),
              static_cast<long long>(shared.failed));
  return shared.failed == 0 ? 0 : 1;
}
