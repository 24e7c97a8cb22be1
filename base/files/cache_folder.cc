#include "base/files/cache_folder.h"

#include <cstdlib>
#include <filesystem>

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

}  // namespace lockstep
