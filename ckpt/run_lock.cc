#include "ckpt/run_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/host_name.h"

namespace lockstep {
namespace {

// What the lock's holder wrote.
std::string HolderIn(int file) {
  std::array<char, 512> text{};
  const ssize_t got = pread(file, text.data(), text.size() - 1, 0);
  std::string holder(text.data(), got > 0 ? static_cast<size_t>(got) : 0);
  return holder.empty() ? "another process" : FirstLine(holder);
}

}  // namespace

RunLock::RunLock(const std::string& run_dir)
    : file_(open((run_dir + "/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {
  if (file_ < 0) {
    throw UsageError("{}/lock: cannot be opened: {}", run_dir, std::strerror(errno));
  }
  if (flock(file_, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) {
      const std::string holder = HolderIn(file_);
      close(file_);
      throw UsageError("{}: {} trains in it: wait until it has ended, or choose another run_dir",
                       run_dir, holder);
    }
    why_not_ = fmt::format("{}/lock: {}", run_dir, std::strerror(errno));
    return;
  }
  const std::string holder = fmt::format("process {} on {}\n", getpid(), HostName());
  if (ftruncate(file_, 0) != 0) return;
  // For a reader's information only: that it is not there is no error.
  [[maybe_unused]] const ssize_t written = pwrite(file_, holder.data(), holder.size(), 0);
}

RunLock::~RunLock() { close(file_); }

}  // namespace lockstep
