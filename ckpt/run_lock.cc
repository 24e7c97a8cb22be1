#include "ckpt/run_lock.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/files/file_descriptor.h"
#include "base/files/file_lock.h"
#include "base/files/open_file.h"
#include "base/host_name.h"

namespace lockstep {
namespace {

// Returns the first line of the lock file, which the process that holds the lock has written, or "another process" if
// the file is empty.
std::string HolderIn(int file) {
  std::array<char, 512> text{};
  const ssize_t got = pread(file, text.data(), text.size() - 1, 0);
  std::string holder(text.data(), got > 0 ? static_cast<size_t>(got) : 0);
  return holder.empty() ? "another process" : FirstLine(holder);
}

std::string LockPath(const std::string& run_dir) { return run_dir + "/lock"; }

std::string JobText(const std::string& job) { return fmt::format("(job {})", job); }

FileDescriptor OpenLock(const std::string& run_dir) {
  std::string why;
  return OpenPlainFile(LockPath(run_dir), kInRunFolder, O_RDONLY, why);
}

}  // namespace

RunLock::RunLock(const std::string& run_dir, const std::string& job) {
  std::string why;
  file_ = OpenPlainFile(LockPath(run_dir), kInRunFolder, O_RDWR | O_CREAT, why);
  if (file_.get() < 0) throw UsageError("{}: cannot be opened: {}", LockPath(run_dir), why);
  if (const int error = LockFile(file_.get()); error != 0) {
    if (error == EWOULDBLOCK) {
      const std::string holder = HolderIn(file_.get());
      throw UsageError("{}: {} trains in it: wait until it has ended, or choose another run_dir",
                       run_dir, holder);
    }
    why_not_ = fmt::format("{}/lock: {}", run_dir, std::strerror(error));
  }
  const std::string holder =
      fmt::format("process {} on {} {}\n", getpid(), HostName(), JobText(job));
  // fsync() makes the text visible to other machines that share the file system.
  const int file = file_.get();
  if (ftruncate(file, 0) != 0 || pwrite(file, holder.data(), holder.size(), 0) < 0 ||
      fsync(file) != 0) {
    throw UsageError("{}: cannot be written: {}", LockPath(run_dir), std::strerror(errno));
  }
}

bool RunLock::IsHeld(const std::string& run_dir) {
  const FileDescriptor file = OpenLock(run_dir);
  return file.get() >= 0 && IsLocked(file.get());
}

bool RunLock::IsOf(const std::string& run_dir, const std::string& job) {
  const FileDescriptor file = OpenLock(run_dir);
  return file.get() >= 0 && HolderIn(file.get()).ends_with(JobText(job));
}

bool RunLock::IsOfAnother(const std::string& run_dir, const std::string& job) {
  const FileDescriptor file = OpenLock(run_dir);
  if (file.get() < 0) return false;
  const std::string holder = HolderIn(file.get());
  // The lock file is empty for a moment while the holder's name is written into it. Only a text that ends with ')' is
  // complete.
  return holder.ends_with(')') && !holder.ends_with(JobText(job));
}

}  // namespace lockstep
