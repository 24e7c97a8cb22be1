#include "base/files/scratch_folder.h"

#include <fcntl.h>
#include <ftw.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr char kPrefix[] = "lockstep-scratch-";  // unlocked folders with this prefix are removed

// std::filesystem::remove_all() does not work in a program that links LibTorch, because LibTorch contains another
// version of this function.
void RemoveTree(const std::string& path) {
  const auto remove = [](const char* name, const struct stat*, int, FTW*) {
    std::remove(name);
    return 0;
  };
  nftw(path.c_str(), remove, /*nopenfd=*/16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}

// Locks the folder and returns the descriptor that holds the lock. Returns an empty descriptor if another process has
// the lock or the folder does not exist.
FileDescriptor Lock(const std::string& path) {
  FileDescriptor folder(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (folder.get() < 0 || flock(folder.get(), LOCK_EX | LOCK_NB) != 0) return {};
  return folder;
}

void RemoveAbandoned(const std::string& parent) {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(parent, error)) {
    struct stat status {};
    if (!entry.path().filename().string().starts_with(kPrefix) ||
        lstat(entry.path().c_str(), &status) != 0 || status.st_uid != geteuid()) {
      continue;
    }
    if (const FileDescriptor lock = Lock(entry.path()); lock.get() >= 0) RemoveTree(entry.path());
  }
}

}  // namespace

ScratchFolder::ScratchFolder(const std::string& parent) {
  RemoveAbandoned(parent);
  // The loop makes another folder if another process has removed the new folder before this process could lock it.
  constexpr int kTries = 10;
  for (int i = 0; i < kTries && lock_.get() < 0; ++i) {
    std::string path = parent + "/" + kPrefix + "XXXXXX";
    if (mkdtemp(path.data()) == nullptr) return;
    lock_ = Lock(path);
    struct stat status {};
    if (lock_.get() >= 0 && fstat(lock_.get(), &status) == 0 && status.st_nlink > 0) path_ = path;
    if (path_.empty()) lock_ = {};
  }
}

ScratchFolder::~ScratchFolder() {
  if (!path_.empty()) RemoveTree(path_);
}

}  // namespace lockstep
