// ReadableFile: a file that can be read at any offset. Its Stamp (size, time of the last change, inode) shows whether
// the file has changed since it was opened.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/files/file_descriptor.h"

namespace lockstep {

// A value that changes when the content of a file changes, or when entries of a folder are added or removed.
struct Stamp {
  int64_t bytes = 0;  // the size of the file; 0 for a folder
  int64_t changed_ns = 0;
  uint64_t inode = 0;
  bool operator==(const Stamp&) const = default;
};

Stamp StampOf(const struct stat& status);

// Returns the stamp of the file or folder `path`, or nothing if it does not exist.
std::optional<Stamp> StampOf(const std::string& path);

// Returns whether the file `path` was written, copied or renamed at `time_ns` (Unix time) or later, or does not exist.
// A copy that has the old file's time of modification is noticed, too.
bool ChangedSince(const std::string& path, int64_t time_ns);

// A regular file that is open for reading. Any number of threads may use it at the same time.
class ReadableFile {
 public:
  // Throws Error: kData if the file cannot be opened or is not a regular file, kUsage if too many files are open or
  // memory is lacking.
  explicit ReadableFile(std::string path);

  const std::string& path() const { return path_; }
  const Stamp& stamp() const { return stamp_; }  // the stamp at the time when the file was opened
  int64_t bytes() const { return stamp_.bytes; }

  // Reads from byte `offset` into `to`, until `to` is full or the file ends. Returns how many bytes it has read. Throws
  // Error (kData).
  size_t ReadAt(int64_t offset, std::span<std::byte> to) const;

  // Reads the whole file into `buffer`, which grows if it is too small, and returns the bytes. Throws Error (kData),
  // also if the file changes in the meantime.
  std::span<const std::byte> ReadWhole(std::vector<std::byte>& buffer) const;

  // Returns whether the file has not changed since it was opened.
  bool Unchanged() const;

 private:
  std::string path_;
  FileDescriptor descriptor_;
  Stamp stamp_;
};

}  // namespace lockstep
