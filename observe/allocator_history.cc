#include "observe/allocator_history.h"

#include <fmt/format.h>
#include <torch/csrc/cuda/memory_snapshot.h>

#include <cstdlib>
#include <exception>
#include <optional>

namespace lockstep {

AllocatorHistory::AllocatorHistory() {
  // In its default mode LibTorch would start a child process, addr2line, to look up the names of functions. Starting a
  // child process is not safe while this process uses the GPU and MPI.
  setenv("TORCH_SYMBOLIZE_MODE", "dladdr", /*overwrite=*/0);
  const std::optional<std::string> all("all");
  torch::cuda::_record_memory_history(all, all, /*stacks=*/"all", kMostEntries);
}

AllocatorHistory::~AllocatorHistory() {
  torch::cuda::_record_memory_history(std::optional<std::string>(), std::nullopt);
}

void AllocatorHistory::Write(const std::string& path) noexcept {
  try {
    files_.Write(path, torch::cuda::_memory_snapshot_pickled());
  } catch (const std::exception& error) {
    files_.AddError(fmt::format("{}: cannot be made: {}", path, error.what()));
  }
}

}  // namespace lockstep
