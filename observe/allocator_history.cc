#include "observe/allocator_history.h"

#include <torch/csrc/cuda/memory_snapshot.h>

#include <chrono>
#include <exception>
#include <filesystem>
#include <optional>
#include <utility>

#include "base/files/atomic_file.h"

namespace lockstep {
namespace {

std::string ErrorOfWriting(const std::string& path, const std::string& snapshot) {
  try {
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    WriteFileAtomically(path, snapshot);
    return "";
  } catch (const std::exception& error) {
    return error.what();
  }
}

}  // namespace

AllocatorHistory::AllocatorHistory() {
  const std::optional<std::string> all("all");
  torch::cuda::_record_memory_history(all, all, /*stacks=*/"all", kMostEntries);
}

AllocatorHistory::~AllocatorHistory() {
  torch::cuda::_record_memory_history(std::optional<std::string>(), std::nullopt);
}

void AllocatorHistory::Write(const std::string& path) {
  std::future<std::string> error;
  try {
    error =
        std::async(std::launch::async, [path, snapshot = torch::cuda::_memory_snapshot_pickled()] {
          return ErrorOfWriting(path, snapshot);
        });
  } catch (const std::exception& exception) {
    std::promise<std::string> failed;
    failed.set_value(path + ": " + exception.what());
    error = failed.get_future();
  }
  writing_.push_back(std::move(error));
}

std::vector<std::string> AllocatorHistory::TakeErrors() {
  std::vector<std::string> errors;
  std::erase_if(writing_, [&](std::future<std::string>& error) {
    if (error.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return false;
    if (std::string text = error.get(); !text.empty()) errors.push_back(std::move(text));
    return true;
  });
  return errors;
}

}  // namespace lockstep
