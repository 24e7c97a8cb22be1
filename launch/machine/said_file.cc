#include "launch/machine/said_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace lockstep {
namespace {

FileDescriptor Opened(const std::string& path) {
  constexpr int kFlags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW;
  FileDescriptor file(open(path.c_str(), kFlags, 0666));
  if (file.get() < 0) throw UsageError("{}: cannot be written: {}", path, std::strerror(errno));
  return file;
}

}  // namespace

SaidFile::SaidFile(std::string path)
    : path_(std::move(path)),
      file_(Opened(path_)),
      begin_(lseek(file_.get(), 0, SEEK_END)),
      taken_(begin_) {}

std::string SaidFile::LastError() const {
  constexpr std::string_view kName = "lockstep: error: ";
  std::ifstream file(path_);
  file.seekg(begin_);
  std::string last_line;
  std::string last_error;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty()) last_line = line;
    if (line.starts_with(kName)) last_error = line.substr(kName.size());
  }
  return last_error.empty() ? last_line : last_error;
}

std::vector<std::string> SaidFile::TakeWarnings() {
  constexpr std::string_view kName = "lockstep: warning: ";
  std::vector<std::string> warnings;
  std::ifstream file(path_);
  file.seekg(taken_);
  // The last line is left for the next call if it has no end yet.
  for (std::string line; std::getline(file, line) && !file.eof();) {
    taken_ += std::ssize(line) + 1;
    if (line.starts_with(kName)) warnings.push_back(line.substr(kName.size()));
  }
  return warnings;
}

}  // namespace lockstep
