#include "data/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace lockstep {

MappedFile::MappedFile(std::string path) : path_(std::move(path)) {
  const int file = open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat status {};
  if (file < 0 || fstat(file, &status) != 0) {
    const int error = errno;
    if (file >= 0) close(file);
    throw DataError("{}: cannot be opened: {}", path_, std::strerror(error));
  }
  bytes_ = status.st_size;
  void* memory = bytes_ == 0 ? MAP_FAILED : mmap(nullptr, bytes_, PROT_READ, MAP_PRIVATE, file, 0);
  const int error = errno;
  close(file);
  if (bytes_ == 0) throw DataError("{}: the file is empty", path_);
  if (memory == MAP_FAILED)
    throw DataError("{}: cannot be mapped: {}", path_, std::strerror(error));
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
