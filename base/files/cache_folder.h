// The folder in which Lockstep caches data for this user (~/.cache/lockstep), and its subfolders.
#pragma once

#include <string>

namespace lockstep {

// Returns $XDG_CACHE_HOME/lockstep if $XDG_CACHE_HOME is an absolute path, otherwise $HOME/.cache/lockstep if $HOME is
// an absolute path, otherwise an empty text. The folder may not exist yet.
std::string CacheFolder();

// Makes the subfolder `name` of the cache folder `cache`, and returns its path. Returns an empty text if `cache` is
// empty, the subfolder cannot be made, or somebody else may have put a file there: it is a link or another user's, or
// others may write to it.
std::string OwnCacheFolder(const std::string& cache, const std::string& name);

}  // namespace lockstep
