// OutputFile: writes a file. Its errors name the path and, if the disk is full, say what to do.
//
// what can fail -> what the caller sees -> the test that shows it (base/files/output_file_test.cc)
//   no permission, disk full, write error -> Error with the path and the system's reason; when the disk is
//     full, also what to do -> OutputFile.NamesWhatCannotBeWritten
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/error.h"
#include "base/files/file_descriptor.h"
#include "base/files/open_file.h"

namespace lockstep {

// The status and the advice of the Error that is thrown if a file cannot be written.
struct WriteErrors {
  ExitStatus status;
  const char* when_full;  // the advice if the disk is full
};

// A file that is open for writing until the OutputFile is destroyed.
class OutputFile {
 public:
  // Makes the file or opens an existing one. Unless `own_names` (base/files/open_file.h) is kGivenByUser, an existing
  // file must be a plain file. The call never waits. Throws Error, as all functions of this class do.
  OutputFile(std::string path, const WriteErrors& errors, int own_names = kGivenByUser);
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  const std::string& path() const { return path_; }

  // Writes `bytes` at `offset` from the beginning of the file.
  void Write(std::span<const std::byte> bytes, int64_t offset);
  void Truncate(int64_t bytes);

  // SetDirect(true) makes later writes bypass the system's page cache (O_DIRECT) if the file system supports O_DIRECT.
  // Large content is written faster in this way. The address of the bytes, the offset and the length of each write must
  // then be multiples of kDirectAlignment. SetDirect(false) makes later writes use the page cache.
  static constexpr size_t kDirectAlignment = 4096;
  void SetDirect(bool direct);

  // Waits until all bytes that Write() has written are on the disk.
  void Sync();

  // Closes the file. Throws Error also for errors that the file system reports only when a file is closed (NFS does
  // so). The destructor ignores such errors.
  void Close();

 private:
  std::string path_;
  WriteErrors errors_;
  FileDescriptor file_;
  bool direct_ = false;
};

// Returns the folder in which `path` lies; "." if `path` is only a name.
std::string ParentFolder(const std::string& path);

// Makes the folder if it does not exist. Throws Error.
void MakeFolder(const std::string& path, const WriteErrors& errors);

// Renames `from` to `to`, and replaces `to` if it exists. Throws Error.
void RenameFile(const std::string& from, const std::string& to, const WriteErrors& errors);

// Renames `from` to `to`. Throws Error if `to` exists, or if the file system reports an error.
void RenameWithoutReplacing(const std::string& from, const std::string& to,
                            const WriteErrors& errors);

// A folder whose names are to be synced to the disk. The folder is kept open, so Sync() works even if another process
// has renamed the folder.
class SyncedFolder {
 public:
  // Opens the folder. Throws Error.
  SyncedFolder(std::string path, const WriteErrors& errors);

  // Waits until the names in the folder are on the disk. Throws Error.
  void Sync();

 private:
  std::string path_;
  WriteErrors errors_;
  FileDescriptor folder_;
};

// Waits until the names in `folder` are on the disk. Throws Error.
void SyncFolder(const std::string& folder, const WriteErrors& errors);

// Waits until everything that was written to the file system of `folder` is on the disk. Throws Error.
void SyncFileSystem(const std::string& folder, const WriteErrors& errors);

}  // namespace lockstep
