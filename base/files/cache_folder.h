// CacheFolder(): returns the folder in which Lockstep caches data for this user (~/.cache/lockstep).
#pragma once

#include <string>

namespace lockstep {

// Returns $XDG_CACHE_HOME/lockstep, or $HOME/.cache/lockstep if that variable is not set. Returns an empty path if
// neither is set, or if the path is not absolute. The folder may not exist yet.
std::string CacheFolder();

}  // namespace lockstep
