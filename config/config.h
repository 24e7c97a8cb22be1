// Reads, checks, overrides and prints a run's configuration (config/schema/config.proto).
//
// Promise: LoadConfig returns a config that is complete (every field that applies to it has a value, and the paths of
// input files are absolute) and valid, or it throws an error of one line that points at the mistake.
//
// what can fail -> what the caller sees -> the test that shows it (config/config_test.cc)
//   no such file                -> Error (kUsage) with the path            -> NamesAMissingFile
//   syntax, unknown field, wrong type, unknown enum value
//                               -> path:line:column, the field, and the nearest valid name
//                                                                          -> PointsAtSyntax, ...
//   number out of range, file that does not exist, impossible combination
//                               -> path:line:column and the field          -> PointsAtARange, ...
//   a bad --set                 -> --set and the assignment                -> Set*
//   a config for other machines names a file relative to its folder
//                               -> path:line:column and the field          -> ForElsewhere...
#pragma once

#include <string>
#include <vector>

#include "config/schema/config.pb.h"

namespace lockstep {

using config::Config;

// Reads the config file `path` and then applies `assignments`, such as "optimizer.lr=0.01", in order. For a repeated
// field the assigned value is a list, such as "model.mlp.hidden=[256, 128]", or one value; the assigned value replaces
// the values in the file. Throws Error (kUsage).
Config LoadConfig(const std::string& path, const std::vector<std::string>& assignments);

// Returns the text of a config file. Throws Error (kUsage).
std::string ReadConfigText(const std::string& path);

// Does the same as LoadConfig() for the config `text`, which was read from the file `path`.
Config LoadConfigText(const std::string& path, const std::string& text,
                      const std::vector<std::string>& assignments);

// Does the same for a run on machines that see other folders than this one. The files that the config names may be
// missing here. If the config names a file relative to its own folder, which those machines do not see, throws Error
// (kUsage).
Config LoadConfigForElsewhere(const std::string& path, const std::string& text,
                              const std::vector<std::string>& assignments);

// Reads the config that a run saved in the folder `run_dir`. The data files that the config names may have been
// deleted. Throws Error (kUsage).
Config LoadRunConfig(const std::string& run_dir);

// Returns the path of the complete config in a run's folder.
std::string RunConfigPath(const std::string& run_dir);

// Returns the config in protobuf's text format, which LoadConfig can read again.
std::string PrintConfig(const Config& config);

// Parses a text that PrintConfig() of this program, or of an older version, printed. Throws Error (kUsage).
Config ParsePrinted(const std::string& text);

}  // namespace lockstep
