#include "prepare/canonical_path.h"

#include <filesystem>
#include <system_error>

#include "base/error.h"

namespace lockstep {

std::string CanonicalPath(const std::string& path) {
  std::error_code error;
  const std::filesystem::path canonical = std::filesystem::weakly_canonical(path, error);
  if (error) throw DataError("{}: {}", path, error.message());
  return canonical.native();
}

}  // namespace lockstep
