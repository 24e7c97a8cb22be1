// The names of the files that are a run's own, which outputs of commands must not replace (base/files/kept_files.h).
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

// Returns whether `path` is a folder with a run's log or lock. A folder with only a config is not a run folder, because
// users may keep their configs in such folders.
bool IsRunFolder(const std::string& path);

// Returns whether `path` is a folder with the state of several runs that are trained together, such as folds.
bool IsCrewFolder(const std::string& path);

// Returns whether `name` is the name of a file or folder that a run, or several that are trained together, keep in
// their folder.
bool IsNameOfRun(std::string_view name);

}  // namespace lockstep
