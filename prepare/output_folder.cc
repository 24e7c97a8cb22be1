#include "prepare/output_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include "base/error.h"
#include "base/files/kept_files.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr char kTemporary[] = ".tmp";

// Returns whether `path` exists, also if it is a dangling symbolic link.
bool Exists(const std::string& path) {
  struct stat status {};
  return lstat(path.c_str(), &status) == 0;
}

void WriteWhole(const std::string& path, const std::string& text) {
  UnfinishedFile file(path);
  file.Write(std::as_bytes(std::span(text)), 0);
  file.Finish();
}

std::vector<std::string> ReadLines(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line, '\0');) lines.push_back(line);
  return lines;
}

// Joins lines with a NUL after each, because names and options may hold line breaks.
std::string LinesText(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text.append(line).push_back('\0');
  return text;
}

// Removes the temporary files that interrupted runs left behind.
void RemoveTemporaries(const std::string& folder) {
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.path().native().ends_with(kTemporary) && !entry.is_directory()) {
      fs::remove(entry.path());
    }
  }
}

// Makes the parent folder of `path`. Ignores errors, because making `path` itself then fails and reports the error.
void MakeParent(const std::string& path) {
  std::error_code ignored;
  fs::create_directories(fs::path(path).parent_path(), ignored);
}

}  // namespace

OutputFolder::OutputFolder(const std::string& destination, const std::vector<std::string>& results,
                           const std::vector<std::string>& job)
    : partial_(destination + ".partial"),
      files_(partial_ + "/files"),
      position_(partial_ + "/position"),
      commit_(partial_ + "/commit") {
  // A result never replaces a file. Here it is refused where a run would take it for a file of its own.
  for (const std::string& result : results) KeptFiles().Require(result, result);
  try {
    Lock(destination, results);
    CheckJob(job);
    if (Exists(commit_)) {
      Move();
      return;
    }
    lockstep::MakeFolder(files_, kPreparing);
    RemoveTemporaries(partial_);
  } catch (const fs::filesystem_error& error) {
    throw DataError("{}: {}", error.path1().string(), error.code().message());
  }
}

void OutputFolder::Lock(const std::string& destination, const std::vector<std::string>& results) {
  for (;;) {
    RequireNew(results);
    MakeParent(partial_);
    lockstep::MakeFolder(partial_, kPreparing);
    lock_ = FileDescriptor(open(partial_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (lock_.get() < 0) {
      if (errno == ENOENT) continue;
      throw DataError("{}: cannot be opened: {}", partial_, std::strerror(errno));
    }
    if (flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno == EWOULDBLOCK)
        throw UsageError("{}: another run is making it at this moment", destination);
      throw DataError("{}: cannot be locked: {}", partial_, std::strerror(errno));
    }
    struct stat locked {
    }, named{};
    if (fstat(lock_.get(), &locked) == 0 && stat(partial_.c_str(), &named) == 0 &&
        locked.st_ino == named.st_ino && locked.st_dev == named.st_dev) {
      RequireNew(results);
      return;
    }
    lock_ = {};
  }
}

void OutputFolder::RequireNew(const std::vector<std::string>& results) const {
  if (Exists(commit_)) return;
  for (const std::string& result : results) {
    if (!Exists(result)) continue;
    // Removes DST.partial if it is empty: either the run that made the result has left it behind, or this run has just
    // made it.
    if (lock_.get() >= 0) rmdir(partial_.c_str());
    throw UsageError("{}: is there already: delete it or name another", result);
  }
}

void OutputFolder::CheckJob(const std::vector<std::string>& job) {
  const std::string path = partial_ + "/job";
  if (!Exists(path)) {
    // Without a job file, DST.partial is new, or a run was killed before it wrote the job file or after it removed the
    // job file.
    if (Exists(files_)) throw UsageError("{}: is no folder of this program's", partial_);
    WriteWhole(path, LinesText(job));
    return;
  }
  const std::vector<std::string> begun = ReadLines(path);
  for (size_t i = 0; i < std::max(begun.size(), job.size()); ++i) {
    const std::string before = i < begun.size() ? begun[i] : "nothing";
    const std::string now = i < job.size() ? job[i] : "nothing";
    if (before == now) continue;
    throw UsageError("{}: was begun with {}, and now it is {}: delete it to begin anew", partial_,
                     before, now);
  }
}

bool OutputFolder::Has(const std::string& name) const {
  struct stat status {};
  return lstat((files_ + "/" + name).c_str(), &status) == 0 && S_ISREG(status.st_mode);
}

void OutputFolder::MakeFolder(const std::string& name) const {
  const std::string path = files_ + "/" + name;
  std::error_code error;
  fs::create_directories(path, error);
  if (error) throw DataError("{}: cannot be made: {}", path, error.message());
}

void OutputFolder::WritePosition(const std::string& text) const { WriteWhole(position_, text); }

std::string OutputFolder::ReadPosition() const {
  std::ifstream file(position_, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void OutputFolder::Commit(const Moves& moves) {
  SyncFileSystem(partial_, kPreparing);
  std::vector<std::string> lines;
  for (const auto& [from, to] : moves) {
    lines.insert(lines.end(), {from, fs::path(to).filename().native()});
  }
  WriteWhole(commit_, LinesText(lines));
  SyncFileSystem(partial_, kPreparing);
  Move();
}

void OutputFolder::Move() {
  const std::vector<std::string> lines = ReadLines(commit_);
  const fs::path folder = fs::path(partial_).parent_path();
  for (size_t i = 0; i + 1 < lines.size(); i += 2) {
    const std::string from = lines[i].empty() ? files_ : files_ + "/" + lines[i];
    if (Exists(from)) RenameWithoutReplacing(from, folder / lines[i + 1], kPreparing);
  }
  SyncFileSystem(partial_, kPreparing);
  rmdir(files_.c_str());
  unlink(position_.c_str());
  unlink((partial_ + "/job").c_str());
  unlink(commit_.c_str());
  rmdir(partial_.c_str());
  is_committed_ = true;
}

UnfinishedFile::UnfinishedFile(const std::string& path)
    : OutputFile(path + kTemporary, kPreparing), last_path_(path) {
  Truncate(0);
}

void UnfinishedFile::Finish() {
  Sync();
  Close();
  RenameFile(path(), last_path_, kPreparing);
}

void FileBatch::Add(const std::string& name, std::span<const std::byte> content) {
  UnfinishedFile file(folder_.files() + "/" + name);
  file.Write(content, 0);
  file.Close();
  names_.push_back(name);
  if (names_.size() == kFilesOfABatch) Flush();
}

void FileBatch::Flush() {
  if (names_.empty()) return;
  SyncFileSystem(folder_.files(), kPreparing);
  for (const std::string& name : names_) {
    const std::string path = folder_.files() + "/" + name;
    RenameFile(path + kTemporary, path, kPreparing);
  }
  names_.clear();
}

void WriteOutput(const OutputFolder& folder, const std::string& name, const std::string& text) {
  WriteWhole(folder.files() + "/" + name, text);
}

}  // namespace lockstep
