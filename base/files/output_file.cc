#include "base/files/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/files/file_descriptor.h"

namespace lockstep {
namespace {

[[noreturn]] void Fail(const std::string& path, const WriteErrors& errors) {
  const bool is_full = errno == ENOSPC || errno == EDQUOT;
  throw Error(errors.status,
              fmt::format("{}: cannot be written: {}{}{}", path, std::strerror(errno),
                          is_full ? ": " : "", is_full ? errors.when_full : ""));
}

FileDescriptor OpenFolder(const std::string& path, const WriteErrors& errors) {
  FileDescriptor folder(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.get() < 0) Fail(path, errors);
  return folder;
}

}  // namespace

OutputFile::OutputFile(std::string path, const WriteErrors& errors, int own_names)
    : path_(std::move(path)), errors_(errors) {
  constexpr int kFlags = O_WRONLY | O_CREAT | O_NONBLOCK | O_CLOEXEC;
  if (own_names == kGivenByUser) {
    file_ = FileDescriptor(open(path_.c_str(), kFlags, 0666));
    if (file_.get() < 0) Fail(path_, errors_);
    return;
  }
  std::string why;
  file_ = OpenPlainFile(path_, own_names, kFlags, why);
  if (file_.get() < 0) {
    throw Error(errors_.status, fmt::format("{}: cannot be written: {}", path_, why));
  }
}

void OutputFile::Write(std::span<const std::byte> bytes, int64_t offset) {
  while (!bytes.empty()) {
    const ssize_t written = pwrite(file_.get(), bytes.data(), bytes.size(), offset);
    if (written < 0 && errno == EINTR) continue;
    // EINVAL means that the file system requires a larger alignment for O_DIRECT, or that the previous write was
    // partial and left an unaligned rest.
    if (written < 0 && errno == EINVAL && direct_) {
      SetDirect(false);
      continue;
    }
    if (written < 0) Fail(path_, errors_);
    bytes = bytes.subspan(written);
    offset += written;
  }
}

void OutputFile::Truncate(int64_t bytes) {
  if (ftruncate(file_.get(), bytes) != 0) Fail(path_, errors_);
}

void OutputFile::SetDirect(bool direct) {
  if (direct == direct_) return;
  const int flags = fcntl(file_.get(), F_GETFL);
  if (flags < 0) Fail(path_, errors_);
  // If the file system does not support O_DIRECT, fcntl() fails and the mode stays as it was.
  const bool set = fcntl(file_.get(), F_SETFL, direct ? flags | O_DIRECT : flags & ~O_DIRECT) == 0;
  direct_ = direct && set;
}

void OutputFile::Sync() {
  if (fsync(file_.get()) != 0) Fail(path_, errors_);
}

void OutputFile::Close() {
  if (close(file_.Release()) != 0 && errno != EINTR) Fail(path_, errors_);
}

std::string ParentFolder(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

void MakeFolder(const std::string& path, const WriteErrors& errors) {
  if (mkdir(path.c_str(), 0777) == 0 || errno == EEXIST) return;
  throw Error(errors.status, fmt::format("{}: cannot be made: {}", path, std::strerror(errno)));
}

void RenameFile(const std::string& from, const std::string& to, const WriteErrors& errors) {
  if (rename(from.c_str(), to.c_str()) != 0) Fail(to, errors);
}

void RenameWithoutReplacing(const std::string& from, const std::string& to,
                            const WriteErrors& errors) {
  if (renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return;
  if (errno != EINVAL && errno != ENOSYS) Fail(to, errors);
  // Some file systems, such as NFS, do not support RENAME_NOREPLACE. There, the check and the rename are separate
  // steps.
  struct stat status {};
  if (lstat(to.c_str(), &status) == 0) {
    errno = EEXIST;
    Fail(to, errors);
  }
  RenameFile(from, to, errors);
}

SyncedFolder::SyncedFolder(std::string path, const WriteErrors& errors)
    : path_(std::move(path)), errors_(errors), folder_(OpenFolder(path_, errors)) {}

void SyncedFolder::Sync() {
  if (fsync(folder_.get()) != 0) Fail(path_, errors_);
}

void SyncFolder(const std::string& folder, const WriteErrors& errors) {
  SyncedFolder(folder, errors).Sync();
}

void SyncFileSystem(const std::string& folder, const WriteErrors& errors) {
  if (syncfs(OpenFolder(folder, errors).get()) != 0) Fail(folder, errors);
}

}  // namespace lockstep
