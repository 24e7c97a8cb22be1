// AllocatorHistory: records what LibTorch's CUDA allocator does on this process's GPUs, and writes the record in the
// file format of PyTorch's memory viewer (https://pytorch.org/memory_viz, and python -m torch.cuda._memory_viz). An
// AllocatorHistory needs a GPU, and TellsBlocks() (observe/device_memory.h) must return true.
//
// Promise: LibTorch itself makes the content of the file (torch/csrc/cuda/memory_snapshot.h, exported by
// libtorch_cuda.so). A background thread writes the file.
//
// While an AllocatorHistory exists, each allocation and each free is recorded with its C++ call stack. Each record
// costs some microseconds of host time. Replayed CUDA graphs allocate nothing, so they add no records. The newest
// kMostEntries records are kept.
//
// what can fail -> what the caller sees -> the test that shows it
//   the snapshot cannot be taken, or the file cannot be written -> TakeErrors() says why -> see
//     observe/memory/background_files.h
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "observe/memory/background_files.h"

namespace lockstep {

class AllocatorHistory {
 public:
  // The maximum number of records that are kept. With more records, a snapshot would take seconds.
  static constexpr size_t kMostEntries = 50000;

  // Sets the environment variable TORCH_SYMBOLIZE_MODE to "dladdr" if it is not set, so that LibTorch does not start
  // addr2line to look up function names. Throws c10::Error without a GPU.
  AllocatorHistory();
  // Waits until all files are written.
  ~AllocatorHistory();
  AllocatorHistory(const AllocatorHistory&) = delete;
  AllocatorHistory& operator=(const AllocatorHistory&) = delete;

  // Takes a snapshot of the present memory and of the history, and begins to write the snapshot to `path`. Creates the
  // folder of `path` if it is missing, but not the folders above it. Any thread may call Write(). Does not throw:
  // TakeErrors() returns the errors.
  void Write(const std::string& path) noexcept;

  // Waits until all files that Write() has begun are written.
  void Wait() { files_.Wait(); }

  // Returns the errors of Write() since the last call of TakeErrors().
  std::vector<std::string> TakeErrors() { return files_.TakeErrors(); }

 private:
  BackgroundFiles files_;
};

}  // namespace lockstep
