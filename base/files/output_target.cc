#include "base/files/output_target.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/files/open_file.h"
#include "base/files/output_file.h"
#include "base/say.h"
#include "base/write_all.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

Error NotWritten(const std::string& path, const std::string& why) {
  return CheckpointError("{}: cannot be written: {}", path, why);
}

// Returns N if `folder`/`name` is /proc/self/fd/N, that is, a descriptor of this process. Otherwise returns nothing.
std::optional<int> DescriptorNamed(const fs::path& folder, const std::string& name) {
  const std::string own = fmt::format("/proc/{}/fd", getpid());
  std::error_code error;
  if (fs::canonical(folder, error) != own) return std::nullopt;
  int number = 0;
  const auto [end, wrong] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (wrong != std::errc() || end != name.data() + name.size()) return std::nullopt;
  return number;
}

// Opens a file that is not a plain file. If the file is a pipe that no process reads, tries for five seconds.
FileDescriptor OpenThrough(const std::string& path, bool is_pipe) {
  constexpr std::chrono::seconds kPatience{5};
  constexpr std::chrono::milliseconds kInterval{20};
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (true) {
    FileDescriptor file(open(path.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
    if (file.get() >= 0) {
      fcntl(file.get(), F_SETFL, fcntl(file.get(), F_GETFL) & ~O_NONBLOCK);
      return file;
    }
    if (!is_pipe || errno != ENXIO) throw NotWritten(path, std::strerror(errno));
    if (std::chrono::steady_clock::now() > deadline) {
      throw NotWritten(path, "it is a pipe that nobody reads");
    }
    std::this_thread::sleep_for(kInterval);
  }
}

// Throws Error (kUsage) if the open plain file `file` must not be written, such as a run's log behind >>.
void RequireNotKept(const FileDescriptor& file, const KeptFiles& kept, const std::string& given) {
  struct stat status {};
  if (fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) return;
  kept.Require(status, given);
  std::error_code error;
  const fs::path path = fs::read_symlink(fmt::format("/proc/self/fd/{}", file.get()), error);
  if (!error) kept.Require(path, given);
}

std::string PathOf(const std::string& path) {
  return path == kStandardOutput ? "/dev/stdout" : path;
}

}  // namespace

OutputTarget::OutputTarget(const std::string& path, const KeptFiles& kept) : path_(PathOf(path)) {
  if (path_.empty()) throw UsageError("\"\": is no name of a file to write");
  constexpr int kMostLinks = 40;  // the same limit as Linux has
  fs::path target = path_;
  struct stat status {};
  bool is_there = false;
  for (int links = 0;; ++links) {
    if (links > kMostLinks) throw NotWritten(path_, "links lead in a circle");
    const fs::path folder = ParentFolder(target);
    if (const std::optional<int> number = DescriptorNamed(folder, target.filename())) {
      through_ = FileDescriptor(fcntl(*number, F_DUPFD_CLOEXEC, 0));
      if (through_.get() < 0) throw NotWritten(path_, std::strerror(errno));
      RequireNotKept(through_, kept, path_);
      return;
    }
    is_there = lstat(target.c_str(), &status) == 0;
    if (!is_there && errno != ENOENT) throw NotWritten(path_, std::strerror(errno));
    if (!is_there || !S_ISLNK(status.st_mode)) break;
    std::error_code error;
    const fs::path next = fs::read_symlink(target, error);
    if (error) throw NotWritten(path_, error.message());
    // A link in /proc/PID/fd of another process may hold a text such as "pipe:[123]", which is not a path. The pipe
    // must then be opened through the link itself.
    if (next.string().find(":[") != std::string::npos) break;
    target = next.is_absolute() ? next : folder / next;
  }
  if (is_there && S_ISLNK(status.st_mode) && stat(target.c_str(), &status) != 0) {
    throw NotWritten(path_, std::strerror(errno));
  }
  if (is_there &&
      (S_ISDIR(status.st_mode) || S_ISBLK(status.st_mode) || S_ISSOCK(status.st_mode))) {
    throw NotWritten(path_, fmt::format("it is {}", KindName(status.st_mode)));
  }
  if (is_there && !S_ISREG(status.st_mode)) {
    through_ = OpenThrough(target, S_ISFIFO(status.st_mode));
    return;
  }
  kept.Require(target, path_);
  replaced_ = target;
  const std::string folder = ParentFolder(target);
  if (access(folder.c_str(), W_OK | X_OK) != 0) {
    throw NotWritten(path_, fmt::format("{}: {}", folder, std::strerror(errno)));
  }
  if (!fs::is_directory(folder)) throw NotWritten(path_, folder + " is no folder");
}

void OutputTarget::Write(const std::function<void(const AppendBytes&)>& write) {
  if (through_.get() < 0) {
    WriteFileAtomically(replaced_, write);
    return;
  }
  write([&](std::span<const std::byte> bytes) {
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (const int error = WriteAll(through_.get(), text); error != 0) {
      throw NotWritten(path_, std::strerror(error));
    }
  });
  // Some file systems report a failed write only when the file is closed.
  if (close(through_.Release()) != 0 && errno != EINTR) {
    throw NotWritten(path_, std::strerror(errno));
  }
}

void TellOfOutput(const std::string& path, const std::string& line) {
  struct stat output {};
  struct stat written {};
  const bool is_output = fstat(STDOUT_FILENO, &output) == 0 &&
                         stat(PathOf(path).c_str(), &written) == 0 &&
                         output.st_dev == written.st_dev && output.st_ino == written.st_ino;
  if (is_output) {
    Announce(line);
  } else {
    Print("{}\n", line);
  }
}

}  // namespace lockstep
