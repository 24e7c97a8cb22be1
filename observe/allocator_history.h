// AllocatorHistory: what LibTorch's allocator did on this process's GPUs, in the file format of PyTorch's memory viewer
// (https://pytorch.org/memory_viz, and python -m torch.cuda._memory_viz). It needs a GPU and TellsBlocks()
// (observe/device_memory.h).
//
// Promise: the file is LibTorch's own (torch/csrc/cuda/memory_snapshot.h, exported by libtorch_cuda.so). A thread
// writes it.
//
// While it exists, each allocation and free is recorded with the C++ functions that called it, which takes some
// microseconds of the host each. Replayed CUDA graphs allocate nothing. The newest kMostEntries are kept.
//
// what can fail -> what the caller sees -> the test that shows it
//   the snapshot cannot be taken, or the file not be written -> TakeErrors() says why -> see
//     observe/memory/background_files.h
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "observe/memory/background_files.h"

namespace lockstep {

class AllocatorHistory {
 public:
  // More of them take seconds to be put into a snapshot.
  static constexpr size_t kMostEntries = 50000;

  // Sets TORCH_SYMBOLIZE_MODE, if it is not set, so that LibTorch names functions without a program beside it. Throws
  // c10::Error without a GPU.
  AllocatorHistory();
  // Waits for files that are being written.
  ~AllocatorHistory();
  AllocatorHistory(const AllocatorHistory&) = delete;
  AllocatorHistory& operator=(const AllocatorHistory&) = delete;

  // Takes a snapshot of the memory as it is now, with the history, and begins to write it to `path`, whose folder is
  // made if only it is missing. Any thread may call it. Does not throw.
  void Write(const std::string& path) noexcept;

  // Returns when all files so far are written.
  void Wait() { files_.Wait(); }

  // Returns what went wrong so far, each once.
  std::vector<std::string> TakeErrors() { return files_.TakeErrors(); }

 private:
  BackgroundFiles files_;
};

}  // namespace lockstep
