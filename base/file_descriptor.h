// A file descriptor that is closed with its owner.
#pragma once

#include <unistd.h>

#include <utility>

namespace lockstep {

class FileDescriptor {
 public:
  FileDescriptor() = default;
  // Negative: none.
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

 private:
  int number_ = -1;
};

}  // namespace lockstep
