#include "observe/memory/background_files.h"

#include <chrono>
#include <exception>
#include <filesystem>
#include <iterator>
#include <utility>

#include "base/files/atomic_file.h"

namespace lockstep {
namespace {

// Returns why it cannot be written; empty if it was.
std::string ErrorOfWriting(const std::string& path, const std::string& content) {
  try {
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    WriteFileAtomically(path, content);
    return "";
  } catch (const std::exception& error) {
    return error.what();
  }
}

}  // namespace

void BackgroundFiles::Write(std::string path, std::string content) noexcept {
  try {
    writing_.push_back(std::async(std::launch::async, ErrorOfWriting, path, std::move(content)));
  } catch (const std::exception& exception) {  // there is no thread
    errors_.push_back(std::move(path) + ": " + exception.what());
  }
}

std::vector<std::string> BackgroundFiles::TakeErrors() {
  std::vector<std::string> errors = std::exchange(errors_, {});
  std::erase_if(writing_, [&](std::future<std::string>& error) {
    if (error.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return false;
    if (std::string text = error.get(); !text.empty()) errors.push_back(std::move(text));
    return true;
  });
  return errors;
}

}  // namespace lockstep
