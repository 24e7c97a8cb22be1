// Adds the files that a config names to those that the outputs of a command must not replace (base/files/kept_files.h).
#pragma once

#include <string>

#include "base/files/kept_files.h"
#include "config/schema/config.pb.h"

namespace lockstep {

// Adds the data file or folder `path`. In a folder, images and shards of images are data. `what` says what it is, such
// as "the input".
void KeepData(const std::string& path, const std::string& what, KeptFiles& kept);

// Adds the files of all fields of `config` that name files which must exist. `of` says whose config it is, such as "the
// run R".
void KeepFilesOf(const config::Config& config, const std::string& of, KeptFiles& kept);

}  // namespace lockstep
