#include "base/files/cache_folder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace lockstep {

std::string CacheFolder() {
  const auto absolute = [](const char* name) {
    const char* value = std::getenv(name);
    const std::filesystem::path path(value == nullptr ? "" : value);
    return path.is_absolute() ? path : std::filesystem::path();
  };
  std::filesystem::path base = absolute("XDG_CACHE_HOME");
  if (base.empty() && !absolute("HOME").empty()) base = absolute("HOME") / ".cache";
  return base.empty() ? std::string() : (base / "lockstep").string();
}

std::string OwnCacheFolder(const std::string& cache, const std::string& name) {
  if (cache.empty()) return {};
  const std::string folder = cache + "/" + name;
  std::error_code ignored;
  std::filesystem::create_directories(cache, ignored);
  mkdir(folder.c_str(), 0700);
  struct stat found {};
  const bool is_own = lstat(folder.c_str(), &found) == 0 && S_ISDIR(found.st_mode) &&
                      found.st_uid == geteuid() && (found.st_mode & (S_IWGRP | S_IWOTH)) == 0;
  return is_own ? folder : std::string();
}

}  // namespace lockstep
