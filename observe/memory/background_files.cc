#include "observe/memory/background_files.h"

#include <sys/stat.h>

#include <exception>
#include <filesystem>
#include <utility>

#include "base/files/atomic_file.h"

namespace lockstep {
namespace {

// Writes a file. Returns why the file cannot be written; an empty text if it was written.
std::string ErrorOfWriting(const std::string& path, const std::string& content) {
  try {
    mkdir(std::filesystem::path(path).parent_path().c_str(), 0777);
    WriteFileAtomically(path, content);
    return "";
  } catch (const std::exception& error) {
    return error.what();
  }
}

}  // namespace

void BackgroundFiles::Write(std::string path, std::string content) {
  const std::scoped_lock lock(mutex_);
  if (!is_writing_) {
    // The previous thread has left its loop, so the assignment, which joins that thread, does not wait.
    writer_ = std::jthread([this] { WriteAll(); });
    is_writing_ = true;
  }
  waiting_.push({std::move(path), std::move(content)});
}

void BackgroundFiles::WriteAll() {
  std::unique_lock lock(mutex_);
  while (!waiting_.empty()) {
    const File file = std::move(waiting_.front());
    waiting_.pop();
    lock.unlock();
    std::string error = ErrorOfWriting(file.path, file.content);
    lock.lock();
    if (!error.empty()) errors_.push_back(std::move(error));
  }
  is_writing_ = false;
  idle_.notify_all();
}

void BackgroundFiles::Wait() {
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [&] { return !is_writing_; });
}

void BackgroundFiles::AddError(std::string error) {
  const std::scoped_lock lock(mutex_);
  errors_.push_back(std::move(error));
}

std::vector<std::string> BackgroundFiles::TakeErrors() {
  const std::scoped_lock lock(mutex_);
  return std::exchange(errors_, {});
}

}  // namespace lockstep
