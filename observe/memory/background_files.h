// BackgroundFiles: writes files on threads of its own.
//
// Promise: Write() returns at once. A file is complete or it is not there.
//
// what can fail -> what the caller sees -> the test that shows it (observe/memory/background_files_test.cc)
//   a file cannot be written -> TakeErrors() says why -> BackgroundFiles.SaysWhatCannotBeWritten
#pragma once

#include <future>
#include <string>
#include <vector>

namespace lockstep {

class BackgroundFiles {
 public:
  BackgroundFiles() = default;
  // Waits for files that are being written.
  ~BackgroundFiles() = default;
  BackgroundFiles(const BackgroundFiles&) = delete;
  BackgroundFiles& operator=(const BackgroundFiles&) = delete;

  // Writes `content` to `path`, whose folder is made. Does not throw.
  void Write(std::string path, std::string content) noexcept;

  // Returns what went wrong with files that are done, each once.
  std::vector<std::string> TakeErrors();

 private:
  std::vector<std::future<std::string>> writing_;
  std::vector<std::string> errors_;
};

}  // namespace lockstep
