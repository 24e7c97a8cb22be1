// ReadableFile: a file that can be read at any place. Its Stamp (size, time of change, inode) shows whether the file
// has changed since it was opened.
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

// What changes when a file's content does, or when entries of a folder come or go.
struct Stamp {
  int64_t bytes = 0;  // of a file
  int64_t changed_ns = 0;
  uint64_t inode = 0;
  bool operator==(const Stamp&) const = default;
};

Stamp StampOf(const struct stat& status);

// Nothing where there is no such file or folder.
std::optional<Stamp> StampOf(const std::string& path);

// A regular file, open to be read. For any number of threads at once.
class ReadableFile {
 public:
  // Throws Error: kData where it cannot be opened or is no regular file, kUsage where this process has
  // too many open.
  explicit ReadableFile(std::string path);

  const std::string& path() const { return path_; }
  const Stamp& stamp() const { return stamp_; }  // as it was opened
  int64_t bytes() const { return stamp_.bytes; }

  // Fills `to` from byte `offset` on, as far as the file goes; returns how many bytes that was. Throws
  // Error (kData).
  size_t ReadAt(int64_t offset, std::span<std::byte> to) const;

  // The whole file, in `buffer`, which grows where it is too small. Throws Error (kData), also where the file
  // changes meanwhile.
  std::span<const std::byte> ReadWhole(std::vector<std::byte>& buffer) const;

  // Whether the file is still what was opened.
  bool Unchanged() const;

 private:
  std::string path_;
  FileDescriptor descriptor_;
  Stamp stamp_;
};

}  // namespace lockstep
