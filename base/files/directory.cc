#include "base/files/directory.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "base/error.h"

namespace lockstep {
namespace {

bool IsFolder(int directory, const char* name, int flags) {
  struct stat status {};
  return fstatat(directory, name, &status, flags) == 0 && S_ISDIR(status.st_mode);
}

// Returns the kind of the entry. Calls fstatat() only for links, and on file systems that do not report the entry's
// type.
EntryKind KindOf(int directory, const dirent& entry) {
  if (entry.d_type == DT_DIR) return EntryKind::kFolder;
  if (entry.d_type != DT_LNK && entry.d_type != DT_UNKNOWN) return EntryKind::kOther;
  if (entry.d_type == DT_UNKNOWN && IsFolder(directory, entry.d_name, AT_SYMLINK_NOFOLLOW)) {
    return EntryKind::kFolder;
  }
  return IsFolder(directory, entry.d_name, 0) ? EntryKind::kLinkToFolder : EntryKind::kOther;
}

}  // namespace

Stamp VisitDirectory(const std::string& path,
                     const std::function<void(std::string_view, EntryKind)>& visit) {
  const auto fail = [&] {
    throw DataError("{}: cannot be listed: {}", path, std::strerror(errno));
  };
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir(path.c_str()), &closedir);
  struct stat status {};
  if (!folder || fstat(dirfd(folder.get()), &status) != 0) fail();
  while (true) {
    errno = 0;
    const dirent* entry = readdir(folder.get());
    if (entry == nullptr && errno != 0) fail();
    if (entry == nullptr) return StampOf(status);
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") visit(name, KindOf(dirfd(folder.get()), *entry));
  }
}

}  // namespace lockstep
