// CanonicalPath(): gives the same absolute path for a file, however the user writes the file's path.
#pragma once

#include <string>

namespace lockstep {

// The absolute path without links, as far as there is something. Throws Error (kData) where that cannot
// be found out.
std::string CanonicalPath(const std::string& path);

}  // namespace lockstep
