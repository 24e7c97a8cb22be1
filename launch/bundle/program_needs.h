// Finds out, with ldd, objdump and pip's records, what a program needs from the machine on which it runs.
//
// what can fail -> what the caller sees -> the test that shows it (tests/bundle_test.py)
//   a tool is not installed -> Error (kUsage) with the package that has it -> test_a_missing_tool_is_said
//   a tool fails -> Error (kUsage) with the first line of the tool's standard error -> (needs a broken tool)
//   a library is not found -> Error (kUsage) that names the library -> (needs a broken machine)
#pragma once

#include <map>
#include <string>
#include <vector>

namespace lockstep {

// Returns the path of `tool` in $PATH. If $PATH does not have the tool, throws Error (kUsage) that names the `package`
// to install.
std::string FindTool(const std::string& tool, const std::string& package);

// Runs `command` and returns its standard output. If the command fails, throws Error (kUsage) with the first line of
// the command's standard error.
std::string OutputOf(const std::vector<std::string>& command);

// Maps the name of each library, such as libfmt.so.9, to its path.
using Libraries = std::map<std::string, std::string>;

// Returns, for each of `files`, the shared libraries that the file needs, directly or through other libraries. Throws
// Error (kUsage) if a library is not found.
std::vector<Libraries> LibrariesOf(const std::vector<std::string>& files);

// Returns whether `library` belongs to glibc or to the libraries of the C++ compiler. Every machine has its own
// versions of these libraries.
bool IsTheSystems(const std::string& library);

// The newest versions of glibc's and libstdc++'s symbols that files need.
struct SymbolVersions {
  std::string glibc;    // without the prefix: "2.34"
  std::string glibcxx;  // with the prefix: "GLIBCXX_3.4.30"
};
SymbolVersions SymbolVersionsOf(const std::vector<std::string>& files);

// A package that pip installed.
struct Wheel {
  std::string package;  // such as "nvidia-nccl-cu13"
  std::string version;  // such as "2.28.9"
};

// Returns a map from each file in `files` to its package. Files that belong to no installed package are left out. The
// paths in `files` are relative to `site`, the folder of the installed packages. Throws Error (kUsage).
std::map<std::string, Wheel> WheelsOf(const std::vector<std::string>& files,
                                      const std::string& site);

}  // namespace lockstep
