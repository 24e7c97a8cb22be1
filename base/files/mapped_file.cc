#include "base/files/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/files/open_file.h"

namespace lockstep {

MappedFile::MappedFile(std::string path) : path_(std::move(path)) {
  std::string why;
  const FileDescriptor file = OpenPlainFile(path_, kGivenByUser, O_RDONLY, why);
  if (!why.empty()) throw DataError("{}: cannot be opened: {}", path_, why);
  struct stat status {};
  if (fstat(file.get(), &status) != 0) {
    throw DataError("{}: cannot be opened: {}", path_, std::strerror(errno));
  }
  bytes_ = status.st_size;
  if (bytes_ == 0) throw DataError("{}: the file is empty", path_);
  void* memory = mmap(nullptr, bytes_, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (memory == MAP_FAILED) {
    throw DataError("{}: cannot be mapped: {}", path_, std::strerror(errno));
  }
  memory_ = static_cast<const char*>(memory);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      bytes_(other.bytes_),
      memory_(std::exchange(other.memory_, nullptr)) {}

MappedFile::~MappedFile() {
  if (memory_ != nullptr) munmap(const_cast<char*>(memory_), bytes_);
}

}  // namespace lockstep
