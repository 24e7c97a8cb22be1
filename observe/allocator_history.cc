#include "observe/allocator_history.h"

#include <torch/csrc/cuda/memory_snapshot.h>

#include <optional>

namespace lockstep {

AllocatorHistory::AllocatorHistory() {
  const std::optional<std::string> all("all");
  torch::cuda::_record_memory_history(all, all, /*stacks=*/"all", kMostEntries);
}

AllocatorHistory::~AllocatorHistory() {
  torch::cuda::_record_memory_history(std::optional<std::string>(), std::nullopt);
}

void AllocatorHistory::Write(const std::string& path) {
  files_.Write(path, torch::cuda::_memory_snapshot_pickled());
}

}  // namespace lockstep
