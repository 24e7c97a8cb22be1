#include "base/files/new_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/files/file_descriptor.h"

namespace lockstep {

NewFile::Temporary::Temporary(const std::string& target, const WriteErrors& errors)
    : path(target + ".XXXXXX") {
  if (FileDescriptor(mkostemp(path.data(), O_CLOEXEC)).get() >= 0) return;
  throw Error(errors.status, fmt::format("{}: cannot be made: {}", target, std::strerror(errno)));
}

NewFile::Temporary::~Temporary() {
  if (!path.empty()) unlink(path.c_str());
}

NewFile::NewFile(std::string path, const WriteErrors& errors)
    : path_(std::move(path)),
      errors_(errors),
      temporary_(path_, errors_),
      file_(temporary_.path, errors_) {}

void NewFile::Write(std::span<const std::byte> bytes) {
  file_.Write(bytes, written_);
  written_ += static_cast<int64_t>(bytes.size());
}

void NewFile::Finish() {
  file_.Close();
  RenameFile(temporary_.path, path_, errors_);
  temporary_.path.clear();
}

}  // namespace lockstep
