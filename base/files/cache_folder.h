// CacheFolder(): returns the folder in which Lockstep caches data for this user (~/.cache/lockstep).
#pragma once

#include <string>

namespace lockstep {

// Returns $XDG_CACHE_HOME/lockstep if $XDG_CACHE_HOME is an absolute path, otherwise $HOME/.cache/lockstep if $HOME is
// an absolute path, otherwise an empty text. The folder may not exist yet.
std::string CacheFolder();

}  // namespace lockstep
