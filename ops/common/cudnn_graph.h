// CudnnGraph: a cuDNN graph, which describes an operation, together with the plan that computes the operation.
//
// All threads can share one CudnnGraph: a plan runs with any cuDNN handle of its device, not only with the handle with
// which the plan was made. The first call of Run() in each thread makes the thread's handle. A CUDA graph can capture
// all other calls of Run(), because they make no handle. The handles are ATen's and live as long as the process, so a
// CudnnGraph never outlives the handle with which it was made.
#pragma once

#include <ATen/cudnn/Handle.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <cudnn_frontend.h>

#include <cstdint>
#include <mutex>
#include <unordered_map>

#include "base/memory_scope.h"
#include "ops/common/float_type.h"

namespace lockstep::ops {

// A map from the id of each tensor in the graph to the tensor's address.
using CudnnPointers = std::unordered_map<int64_t, void*>;

class CudnnGraph {
 public:
  // Creates an empty graph for tensors of this type, with float32 arithmetic.
  explicit CudnnGraph(FloatType type) {
    using cudnn_frontend::DataType_t;
    graph_.set_io_data_type(type == FloatType::kFloat16 ? DataType_t::HALF : DataType_t::BFLOAT16)
        .set_intermediate_data_type(DataType_t::FLOAT)
        .set_compute_data_type(DataType_t::FLOAT);
  }

  // Returns the graph. The caller must describe the operations in the graph, and build the graph before the first
  // Run().
  cudnn_frontend::graph::Graph& graph() { return graph_; }

  // Asks cuDNN how much workspace the graph needs. The graph must have been built before. Returns false if cuDNN
  // returns an error.
  bool FindWorkspace() { return graph_.get_workspace_size(workspace_bytes_).is_good(); }
  int64_t workspace_bytes() const { return workspace_bytes_; }

  // Runs the graph on the current stream. `workspace` must have workspace_bytes() bytes.
  cudnn_frontend::error_t Run(CudnnPointers& pointers, void* workspace) {
    // The handle belongs to this thread and uses the current stream.
    const cudnnHandle_t handle = at::native::getCudnnHandle();
    // Not all of cuDNN's engines allow several threads to run one plan at the same time.
    const std::lock_guard lock(mutex_);
    return graph_.execute(handle, pointers, workspace);
  }

  // Runs the graph like Run() above, but allocates the workspace itself.
  cudnn_frontend::error_t Run(CudnnPointers& pointers) {
    c10::DataPtr workspace;
    if (workspace_bytes_ > 0) {
      const MemoryScope scope(MemoryOwner::kWorkspaces);
      workspace = c10::cuda::CUDACachingAllocator::get()->allocate(workspace_bytes_);
    }
    return Run(pointers, workspace.get());
  }

 private:
  std::mutex mutex_;
  cudnn_frontend::graph::Graph graph_;
  int64_t workspace_bytes_ = 0;
};

}  // namespace lockstep::ops
