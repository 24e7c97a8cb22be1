#include "prepare/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace lockstep {
namespace {

[[noreturn]] void Fail(const std::string& path) {
  const bool is_full = errno == ENOSPC || errno == EDQUOT;
  throw DataError(
      "{}: cannot be written: {}{}", path, std::strerror(errno),
      is_full ? ": make room and give the same command again, it goes on from here" : "");
}

}  // namespace

OutputFile::OutputFile(std::string path)
    : path_(std::move(path)),
      descriptor_(open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666)) {
  if (descriptor_ < 0) Fail(path_);
}

OutputFile::~OutputFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

void OutputFile::Write(std::span<const std::byte> bytes, int64_t offset) {
  while (!bytes.empty()) {
    const ssize_t written = pwrite(descriptor_, bytes.data(), bytes.size(), offset);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) Fail(path_);
    bytes = bytes.subspan(written);
    offset += written;
  }
}

void OutputFile::Truncate(int64_t bytes) {
  if (ftruncate(descriptor_, bytes) != 0) Fail(path_);
}

void OutputFile::Sync() {
  if (fsync(descriptor_) != 0) Fail(path_);
}

void OutputFile::Close() {
  if (close(std::exchange(descriptor_, -1)) != 0 && errno != EINTR) Fail(path_);
}

void RenameFile(const std::string& from, const std::string& to) {
  if (rename(from.c_str(), to.c_str()) != 0) Fail(to);
}

void RenameWithoutReplacing(const std::string& from, const std::string& to) {
  if (renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return;
  if (errno != EINVAL && errno != ENOSYS) Fail(to);
  // The file system cannot do both in one step: NFS, for one.
  struct stat status {};
  if (lstat(to.c_str(), &status) == 0) {
    errno = EEXIST;
    Fail(to);
  }
  RenameFile(from, to);
}

void SyncFileSystem(const std::string& folder) {
  const int descriptor = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) Fail(folder);
  const int result = syncfs(descriptor);
  const int error = errno;
  close(descriptor);
  errno = error;
  if (result != 0) Fail(folder);
}

}  // namespace lockstep
