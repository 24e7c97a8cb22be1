// OutputFile: writes a file. Its errors name the path and say what to do.
//
// what can fail -> what the caller sees -> the test that shows it (base/files/output_file_test.cc)
//   no permission, disk full, write error -> Error with the path and the system's reason; when there is no
//     room, what to do -> OutputFile.NamesWhatCannotBeWritten
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/error.h"
#include "base/files/file_descriptor.h"
#include "base/files/open_file.h"

namespace lockstep {

// What is thrown where a file cannot be written.
struct WriteErrors {
  ExitStatus status;
  const char* when_full;  // what to do, where there is no room
};

// Open for writing until it is destroyed.
class OutputFile {
 public:
  // Makes the file or opens the one that is there, which is a plain one if its folder is not the user's own
  // (base/files/open_file.h); never waits. Throws Error, as the others do.
  OutputFile(std::string path, const WriteErrors& errors, int own_names = kGivenByUser);
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  const std::string& path() const { return path_; }

  // `offset` bytes from the beginning.
  void Write(std::span<const std::byte> bytes, int64_t offset);
  void Truncate(int64_t bytes);

  // From now on writes go past the system's page cache, where the file system can, which is faster for much
  // at once. Their memory, offset and length are multiples of kDirectAlignment then.
  static constexpr size_t kDirectAlignment = 4096;
  void SetDirect(bool direct);

  // What was written is on the disk.
  void Sync();

  // Says what the file system kept to itself until now (NFS does); the destructor would not.
  void Close();

 private:
  std::string path_;
  WriteErrors errors_;
  FileDescriptor file_;
  bool direct_ = false;
};

// The folder that `path` lies in: "." of a name alone.
std::string ParentFolder(const std::string& path);

// Where there is none. Throws Error.
void MakeFolder(const std::string& path, const WriteErrors& errors);

// Replaces `to`. Throws Error.
void RenameFile(const std::string& from, const std::string& to, const WriteErrors& errors);

// Gives `from` its last name, unless something has that name: throws Error then.
void RenameWithoutReplacing(const std::string& from, const std::string& to,
                            const WriteErrors& errors);

// A folder whose names will be brought to the disk. It stays the same one where another process renames
// it meanwhile.
class SyncedFolder {
 public:
  // Throws Error.
  SyncedFolder(std::string path, const WriteErrors& errors);

  // The names in it are on the disk. Throws Error.
  void Sync();

 private:
  std::string path_;
  WriteErrors errors_;
  FileDescriptor folder_;
};

// The names in `folder` are on the disk. Throws Error.
void SyncFolder(const std::string& folder, const WriteErrors& errors);

// What was written to the file system that `folder` lies on is on the disk. Throws Error.
void SyncFileSystem(const std::string& folder, const WriteErrors& errors);

}  // namespace lockstep
