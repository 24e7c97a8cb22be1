// CacheFolder(): gives the folder in which Lockstep keeps data for this user that it can make again
// (~/.cache/lockstep).
#pragma once

#include <string>

namespace lockstep {

// $XDG_CACHE_HOME/lockstep, without that variable $HOME/.cache/lockstep; empty: there is neither, or it is no
// absolute path. It may not exist yet.
std::string CacheFolder();

}  // namespace lockstep
