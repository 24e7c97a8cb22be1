#include "data/readable_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace lockstep {
namespace {

Error Failure(const std::string& path, const char* what) {
  const int error = errno;
  const std::string text = fmt::format("{}: cannot be {}: {}", path, what, std::strerror(error));
  // The machine's fault, not the file's.
  const bool machine = error == EMFILE || error == ENFILE || error == ENOMEM;
  return {machine ? ExitStatus::kUsage : ExitStatus::kData, text};
}

}  // namespace

Stamp StampOf(const struct stat& status) {
  const bool is_folder = S_ISDIR(status.st_mode);
  // A folder's time of modification is set back by tar, rsync -a and cp -a, its time of change is not. Its
  // size says little, and on some file systems follows its content late.
  const timespec& time = is_folder ? status.st_ctim : status.st_mtim;
  return {.bytes = is_folder ? 0 : int64_t{status.st_size},
          .changed_ns = time.tv_sec * int64_t{1'000'000'000} + time.tv_nsec,
          .inode = status.st_ino};
}

std::optional<Stamp> StampOf(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) return std::nullopt;
  return StampOf(status);
}

ReadableFile::ReadableFile(std::string path) : path_(std::move(path)) {
  // Not blocking: a pipe would wait for its writer.
  descriptor_ = open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  struct stat status {};
  if (descriptor_ < 0) throw Failure(path_, "opened");
  const bool found = fstat(descriptor_, &status) == 0;
  if (found && S_ISREG(status.st_mode)) {
    stamp_ = StampOf(status);
    return;
  }
  const Error error = found ? DataError("{}: not a regular file", path_) : Failure(path_, "opened");
  close(descriptor_);
  throw error;
}

ReadableFile::~ReadableFile() { close(descriptor_); }

size_t ReadableFile::ReadAt(int64_t offset, std::span<std::byte> to) const {
  size_t done = 0;
  while (done < to.size()) {
    const ssize_t got = pread(descriptor_, to.data() + done, to.size() - done,
                              static_cast<off_t>(offset + static_cast<int64_t>(done)));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw Failure(path_, "read");
    if (got == 0) break;
    done += got;
  }
  return done;
}

std::span<const std::byte> ReadableFile::ReadWhole(std::vector<std::byte>& buffer) const {
  const auto size = static_cast<size_t>(bytes());
  if (buffer.size() < size) buffer.resize(size);
  const std::span<std::byte> whole = std::span(buffer).first(size);
  if (ReadAt(0, whole) < size || !Unchanged()) {
    throw DataError("{}: changed while it was read", path_);
  }
  return whole;
}

bool ReadableFile::Unchanged() const {
  struct stat status {};
  return fstat(descriptor_, &status) == 0 && StampOf(status) == stamp_;
}

}  // namespace lockstep
