#include "base/files/readable_file.h"

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
  // With these errors the machine is at fault, and not the file.
  const bool machine = error == EMFILE || error == ENFILE || error == ENOMEM;
  return {machine ? ExitStatus::kUsage : ExitStatus::kData, text};
}

}  // namespace

Stamp StampOf(const struct stat& status) {
  const bool is_folder = S_ISDIR(status.st_mode);
  // For a folder, tar, rsync -a and cp -a set the modification time (mtime) back to an old value, but they cannot set
  // the change time (ctime). A folder's size hardly depends on its entries, and some file systems update it late, so
  // the stamp of a folder does not contain the folder's size.
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

bool ChangedSince(const std::string& path, int64_t time_ns) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) return true;
  const timespec& time = status.st_ctim;
  return time.tv_sec * int64_t{1'000'000'000} + time.tv_nsec >= time_ns;
}

// Opens with O_NONBLOCK, because opening a pipe would otherwise wait for a writer.
ReadableFile::ReadableFile(std::string path)
    : path_(std::move(path)), descriptor_(open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  struct stat status {};
  if (descriptor_.get() < 0 || fstat(descriptor_.get(), &status) != 0) {
    throw Failure(path_, "opened");
  }
  if (!S_ISREG(status.st_mode)) throw DataError("{}: not a regular file", path_);
  stamp_ = StampOf(status);
}

size_t ReadableFile::ReadAt(int64_t offset, std::span<std::byte> to) const {
  const std::optional<size_t> read = lockstep::ReadAt(descriptor_, offset, to);
  if (!read) throw Failure(path_, "read");
  return *read;
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
  return fstat(descriptor_.get(), &status) == 0 && StampOf(status) == stamp_;
}

}  // namespace lockstep
