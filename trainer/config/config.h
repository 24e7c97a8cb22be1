// Reads, checks, overrides and prints a run's configuration (trainer/config/schema/config.proto).
//
// Promise: LoadConfig returns a config that is complete (every field is set, paths are absolute) and valid, or it
// throws an error of one line that points at the mistake.
//
// what can fail -> what the caller sees -> the test that shows it (trainer/config/config_test.cc)
//   no such file                -> Error (kUsage) with the path            -> NamesAMissingFile
//   syntax, unknown field, wrong type, unknown enum value
//                               -> path:line:column, the field, and the nearest valid name
//                                                                          -> PointsAtSyntax, ...
//   number out of range, file that does not exist, impossible combination
//                               -> path:line:column and the field          -> PointsAtARange, ...
//   a bad --set                 -> --set and the assignment                -> Set*
#pragma once

#include <string>
#include <vector>

#include "trainer/config/schema/config.pb.h"

namespace lockstep {

using config::Config;

// `assignments` are "optimizer.lr=0.01" and the like, applied in order to what the file says. A
// repeated field takes a list, "model.mlp.hidden=[256, 128]", or one value; both replace what was
// there. Throws Error (kUsage).
Config LoadConfig(const std::string& path, const std::vector<std::string>& assignments);

// The config that a finished run left in its folder. Its data files may be gone. Throws Error
// (kUsage).
Config LoadRunConfig(const std::string& run_dir);

// Where a run's resolved config lies.
std::string RunConfigPath(const std::string& run_dir);

// The config in text format, which LoadConfig reads again.
std::string PrintConfig(const Config& config);

// What PrintConfig() printed, of this program or an older one. Throws Error (kUsage).
Config ParsePrinted(const std::string& text);

}  // namespace lockstep
