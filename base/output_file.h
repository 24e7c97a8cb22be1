// Files that are written, with errors that name the path and what to do.
//
// what can fail -> what the caller sees -> the test that shows it (prepare/output_folder_test.cc)
//   no permission, disk full, write error -> Error (kData) with the path and the system's reason; when
//     there is no room, how to go on -> OutputFile.NamesWhatCannotBeWritten, tests/prepare_test.py
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace lockstep {

// Open for writing until it is destroyed.
class OutputFile {
 public:
  // Makes the file or opens the one that is there. Throws Error (kData), as the others do.
  explicit OutputFile(std::string path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  const std::string& path() const { return path_; }

  // `offset` bytes from the beginning.
  void Write(std::span<const std::byte> bytes, int64_t offset);
  void Truncate(int64_t bytes);

  // What was written is on the disk.
  void Sync();

  // Says what the file system kept to itself until now (NFS does); the destructor would not.
  void Close();

 private:
  std::string path_;
  int descriptor_;
};

// Replaces `to`. Throws Error (kData).
void RenameFile(const std::string& from, const std::string& to);

// Gives `from` its last name, unless something has that name: throws Error (kData) then.
void RenameWithoutReplacing(const std::string& from, const std::string& to);

// What was written to the file system that `folder` lies on is on the disk. Throws Error (kData).
void SyncFileSystem(const std::string& folder);

}  // namespace lockstep
