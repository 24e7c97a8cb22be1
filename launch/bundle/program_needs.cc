#include "launch/bundle/program_needs.h"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string_view>

#include "base/error.h"
#include "base/files/file_descriptor.h"
#include "launch/machine/child_process.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

std::string TextOf(const FileDescriptor& file) {
  std::string text;
  char piece[1 << 16];
  ssize_t bytes = 0;
  lseek(file.get(), 0, SEEK_SET);
  while ((bytes = read(file.get(), piece, sizeof(piece))) > 0) text.append(piece, bytes);
  return text;
}

FileDescriptor FileInMemory() {
  // The flag MFD_CLOEXEC is not set, because a shell in a child process opens the file through its descriptor number
  // (/proc/self/fd/NUMBER).
  FileDescriptor file(memfd_create("lockstep", 0));
  if (file.get() < 0) throw BugError("memfd_create: {}", std::strerror(errno));
  return file;
}

std::vector<int> Numbers(const std::string& version) {
  std::vector<int> numbers;
  std::istringstream parts(version);
  for (std::string part; std::getline(parts, part, '.');)
    numbers.push_back(std::atoi(part.c_str()));
  return numbers;
}

void KeepNewer(std::string& newest, const std::string& version) {
  if (Numbers(newest) < Numbers(version)) newest = version;
}

// Returns what follows `key` in the first line of the file `path` that begins with `key`. Throws Error (kUsage) if
// there is no such line.
std::string Field(const std::string& path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(key)) return line.substr(key.size());
  }
  throw UsageError("{}: no line \"{}...\": install the package again", path, key);
}

}  // namespace

std::string FindTool(const std::string& tool, const std::string& package) {
  std::string found = FindInPath(tool);
  if (!found.empty()) return found;
  throw UsageError("{} is not installed, which makes bundles: apt-get install {}", tool, package);
}

std::string OutputOf(const std::vector<std::string>& command) {
  const FileDescriptor output = FileInMemory();
  const FileDescriptor complaint = FileInMemory();
  // LC_ALL=C makes the tool's output English, because the functions below parse it.
  std::vector<std::string> words{
      "/bin/sh", "-c",
      fmt::format("export LC_ALL=C; exec \"$@\" 2>/proc/self/fd/{}", complaint.get()), "sh"};
  words.insert(words.end(), command.begin(), command.end());
  sigset_t mask;
  pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  const ChildProcess::End end =
      ChildProcess(words, ChildProcess::Group::kOurs, output.get(), mask).Wait();
  if (end.signal != 0) throw UsageError("{} was ended by signal {}", command[0], end.signal);
  if (end.code != 0) {
    throw UsageError("{} failed with status {}: {}", command[0], end.code,
                     FirstLine(TextOf(complaint)));
  }
  return TextOf(output);
}

std::vector<Libraries> LibrariesOf(const std::vector<std::string>& files) {
  std::vector<std::string> command{"ldd"};
  command.insert(command.end(), files.begin(), files.end());
  // ldd prints no file name if the command names only one file, so the command names the first file a second time.
  command.push_back(files.front());
  std::vector<Libraries> libraries;
  std::istringstream lines(OutputOf(command));
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with('\t')) {
      libraries.emplace_back();
      continue;
    }
    // The line looks like "\tlibfmt.so.9 => /lib/x86_64-linux-gnu/libfmt.so.9 (0x00007f7b5c000000)". The line of the
    // dynamic loader itself has no arrow.
    const size_t arrow = line.find(" => ");
    if (arrow == std::string::npos) continue;
    const std::string name = line.substr(1, arrow - 1);
    const std::string path = line.substr(arrow + 4, line.rfind(" (0x") - arrow - 4);
    if (!path.starts_with('/')) {
      throw UsageError("{}, which {} needs, is not found: install it, or build again", name,
                       files[libraries.size() - 1]);
    }
    libraries.back()[name] = fs::path(path).lexically_normal();
  }
  libraries.resize(files.size());
  return libraries;
}

bool IsTheSystems(const std::string& library) {
  static constexpr const char* kNames[] = {
      "ld-linux",   "libc.so.",      "libm.so.",    "libmvec.so.",   "libpthread.so.",
      "libdl.so.",  "librt.so.",     "libutil.so.", "libresolv.so.", "libnsl.so.",
      "libanl.so.", "libstdc++.so.", "libgcc_s.so."};
  return std::ranges::any_of(kNames, [&](const char* name) { return library.starts_with(name); });
}

SymbolVersions SymbolVersionsOf(const std::vector<std::string>& files) {
  std::vector<std::string> command{"objdump", "-p"};
  command.insert(command.end(), files.begin(), files.end());
  constexpr std::string_view kGlibc = "GLIBC_";
  constexpr std::string_view kGlibcxx = "GLIBCXX_";
  std::string glibc, glibcxx;
  std::istringstream words(OutputOf(command));
  for (std::string word; words >> word;) {
    if (word == "GLIBC_ABI_DT_RELR") {
      KeepNewer(glibc, "2.36");
    } else if (word.starts_with(kGlibc)) {
      KeepNewer(glibc, word.substr(kGlibc.size()));
    } else if (word.starts_with(kGlibcxx)) {
      KeepNewer(glibcxx, word.substr(kGlibcxx.size()));
    }
  }
  return {.glibc = glibc, .glibcxx = std::string(kGlibcxx) + glibcxx};
}

std::map<std::string, Wheel> WheelsOf(const std::vector<std::string>& files,
                                      const std::string& site) {
  std::map<std::string, Wheel> wheels;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(site, error)) {
    if (entry.path().extension() != ".dist-info") continue;
    std::ifstream record(entry.path() / "RECORD");
    for (std::string line; std::getline(record, line);) {
      const std::string file = line.substr(0, line.find(','));
      if (std::ranges::find(files, file) == files.end()) continue;
      const std::string metadata = entry.path() / "METADATA";
      wheels[file] = {.package = Field(metadata, "Name: "),
                      .version = Field(metadata, "Version: ")};
    }
  }
  return wheels;
}

}  // namespace lockstep
