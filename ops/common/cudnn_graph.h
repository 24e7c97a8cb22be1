// CudnnGraph: a cuDNN graph, which describes an operation, together with the plan that computes the operation.
//
// All threads can share one CudnnGraph: a plan runs with any handle of its device, not only with the handle with which
// it was made. Only the first call in each thread sets something up, namely the thread's handle. A later call can
// therefore be captured in a CUDA graph. The handles are ATen's and live as long as the process, so the graph never
// outlives its handle.
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

// Maps the id of each tensor in the graph to the tensor's address.
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

  // The caller must describe the operations in this graph and build it before Run().
  cudnn_frontend::graph::Graph& graph() { return graph_; }

  // Asks cuDNN how much workspace the graph needs. Call it after the graph was built. Returns false if cuDNN returns an
  // error.
  bool FindWorkspace() { return graph_.get_workspace_size(workspace_bytes_).is_good(); }
  int64_t workspace_bytes() const { return workspace_bytes_; }

  // Runs the graph on the current stream. `workspace` must have workspace_bytes() bytes.
  cudnn_frontend::error_t Run(CudnnPointers& pointers, void* workspace) {
    // This handle belongs to this thread and uses the current stream.
    const cudnnHandle_t handle = at::native::getCudnnHandle();
    // Not all of cuDNN's engines allow several threads to run one plan at the same time.
    const std::lock_guard lock(mutex_);
    return graph_.execute(handle, pointers, workspace);
  }

  // Like Run() above, but allocates the workspace itself.
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
