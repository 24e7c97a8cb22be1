// FileDescriptor: owns a file descriptor, and closes it in its destructor. ReadAt() reads from any offset of a file.
#pragma once

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

namespace lockstep {

class FileDescriptor {
 public:
  FileDescriptor() = default;
  // A negative number means no descriptor.
  explicit FileDescriptor(int number) : number_(number) {}
  ~FileDescriptor() {
    if (number_ >= 0) close(number_);
  }
  FileDescriptor(FileDescriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }

  int get() const { return number_; }

  // Returns the descriptor, which the caller must close.
  int Release() { return std::exchange(number_, -1); }

 private:
  int number_ = -1;
};

// Reads from byte `offset` into `to`, until `to` is full or the file ends. Returns how many bytes it has read, or
// nothing if the file cannot be read (errno says why).
std::optional<size_t> ReadAt(const FileDescriptor& file, int64_t offset, std::span<std::byte> to);

}  // namespace lockstep
