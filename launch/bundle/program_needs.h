// Finds out what a program needs of the machine that it runs on, from ldd, objdump and pip's records.
//
// what can fail -> what the caller sees -> the test that shows it (tests/bundle_test.py)
//   a tool is not installed -> Error (kUsage) with the package that has it -> test_a_missing_tool_is_said
//   a tool fails -> Error (kUsage) with the first line of its complaint -> (needs a broken tool)
//   a library is not found, or two have one name -> Error (kUsage) naming them -> (needs a broken machine)
#pragma once

#include <map>
#include <string>
#include <vector>

namespace lockstep {

// Path of `tool` in $PATH. Throws Error (kUsage): install `package`.
std::string FindTool(const std::string& tool, const std::string& package);

// What `command` writes to its standard output. Throws Error (kUsage) with the first line of its complaint where it
// fails.
std::string OutputOf(const std::vector<std::string>& command);

// Paths by their names, as in libfmt.so.9.
using Libraries = std::map<std::string, std::string>;

// The shared libraries that each of `files` needs, at any depth. Throws Error (kUsage).
std::vector<Libraries> LibrariesOf(const std::vector<std::string>& files);

// Whether every machine with glibc and a C++ compiler's libraries has it, in the version that fits.
bool IsTheSystems(const std::string& library);

// The newest versions of symbols that `files` take from others.
struct SymbolVersions {
  std::string glibc;    // 2.34
  std::string glibcxx;  // GLIBCXX_3.4.30
};
SymbolVersions SymbolVersionsOf(const std::vector<std::string>& files);

// A package that pip installed.
struct Wheel {
  std::string package;  // nvidia-nccl-cu13
  std::string version;  // 2.28.9
};

// The packages that brought `files` (relative to the folder of packages `site`), those that some package did. Throws
// Error (kUsage).
std::map<std::string, Wheel> WheelsOf(const std::vector<std::string>& files,
                                      const std::string& site);

}  // namespace lockstep
