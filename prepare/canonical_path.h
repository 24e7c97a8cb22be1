// CanonicalPath(): gives the same absolute path for a file, however the user writes the file's path.
#pragma once

#include <string>

namespace lockstep {

// Returns the absolute path of `path`, with the symbolic links resolved in the part of the path that exists. Throws
// Error (kData) if the file system cannot say what exists.
std::string CanonicalPath(const std::string& path);

}  // namespace lockstep
