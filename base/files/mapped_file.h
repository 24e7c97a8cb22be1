// MappedFile: maps a file into memory, to read it.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

class MappedFile {
 public:
  // Maps the file `path`. Throws Error (kData) if the file cannot be mapped or is empty.
  explicit MappedFile(std::string path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;
  ~MappedFile();

  const std::string& path() const { return path_; }
  int64_t bytes() const { return bytes_; }

  // Returns the address of the file's first byte, which is aligned to a page. If the file is cut short while it is
  // mapped, reading a part that is gone ends the process (SIGBUS).
  const char* data() const { return memory_; }

 private:
  std::string path_;
  int64_t bytes_ = 0;
  const char* memory_ = nullptr;
};

}  // namespace lockstep
