// GraphNodes: notes, while a CUDA graph is captured, which of its kernels, copies and memsets belongs to which ranges
// (base/tensor/range.h). A profiler sees only that the graph ran, and what ran in it.
//
// How: before and after each range the nodes that the graph has by then are counted. In a backward pass no ranges are
// begun. There a node of autograd belongs to the range in which its operation ran forward, as their sequence numbers
// say. Backward passes run on another thread, and LibTorch passes the callbacks on to it.
//
// Invariant: only one object lives at a time in a process. Ranges that begin while it lives may end after it, as when a
// capture fails.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "observe/profile/graph_node.h"

namespace lockstep {

class GraphNodes {
 public:
  // `stream` is being captured.
  explicit GraphNodes(cudaStream_t stream);
  ~GraphNodes();
  GraphNodes(const GraphNodes&) = delete;
  GraphNodes& operator=(const GraphNodes&) = delete;

  // Returns all nodes so far, in the order in which they were captured. Call it before the capture ends.
  std::vector<GraphNode> Take();

  struct Watch;

 private:
  std::shared_ptr<Watch> watch_;
  uint64_t handle_ = 0;  // of the callbacks
};

}  // namespace lockstep
