// BackgroundFiles: writes files on a thread of its own, one after the other.
//
// Promise: Write() returns at once. A file is complete or it is not there. Any thread may call any method.
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

  // Writes `content` to `path`, whose folder is made if only it is missing. A later file of the same path replaces it.
  // Throws std::system_error if there can be no thread.
  void Write(std::string path, std::string content);

  // Returns when all files so far are written.
  void Wait();

  // Adds to what went wrong.
  void AddError(std::string error);

  // Returns what went wrong with files that are done, each once.
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
  bool is_writing_ = false;  // whether writer_ is at work
  std::vector<std::string> errors_;
};

}  // namespace lockstep
