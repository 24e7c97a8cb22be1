// BackgroundFiles: writes files on a background thread, one after the other.
//
// Promise: Write() returns at once. A file appears at its path only when it is complete. Any thread may call any
// method.
//
// what can fail -> what the caller sees -> the test that shows it (observe/memory/background_files_test.cc)
//   a file cannot be written -> TakeErrors() says why -> BackgroundFiles.SaysWhatCannotBeWritten
#pragma once

#include <condition_variable>
#include <mutex>
#include <queue>
#include <string>
#include <thread>
#include <vector>

namespace lockstep {

class BackgroundFiles {
 public:
  BackgroundFiles() = default;
  // Waits until all files are written.
  ~BackgroundFiles() { Wait(); }
  BackgroundFiles(const BackgroundFiles&) = delete;
  BackgroundFiles& operator=(const BackgroundFiles&) = delete;

  // Begins to write `content` to `path`. Creates the folder of `path` if it is missing, but not the folders above it. A
  // later Write() to the same path replaces the file. Throws std::system_error if the thread cannot be started.
  void Write(std::string path, std::string content);

  // Waits until all files given to Write() so far are written.
  void Wait();

  // Adds an error to those that TakeErrors() returns.
  void AddError(std::string error);

  // Returns the errors since the last call of TakeErrors().
  std::vector<std::string> TakeErrors();

 private:
  struct File {
    std::string path;
    std::string content;
  };

  void WriteAll();

  std::mutex mutex_;
  std::condition_variable idle_;
  std::queue<File> waiting_;
  std::jthread writer_;
  bool is_writing_ = false;  // whether writer_ is running WriteAll()
  std::vector<std::string> errors_;
};

}  // namespace lockstep
