// GraphNodes: records, while a CUDA graph is captured, in which ranges (base/tensor/range.h) each of its kernels,
// copies and memsets is captured. A profiler cannot find these ranges later: it records the launch of the graph and the
// kernels of the graph, without ranges.
//
// How: at the beginning and at the end of each range, the new nodes of the graph are assigned to the ranges that are
// open. The operations of a backward pass open no ranges. Their nodes are assigned to the range in which the forward
// operation with the same autograd sequence number ran. Backward passes run on another thread, for which LibTorch
// copies the RecordFunction callbacks of the thread that starts the pass.
//
// Invariant: a process has at most one GraphNodes object at a time. Ranges that begin during the lifetime of the object
// may end after the object is destroyed, for example if a capture fails.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "observe/profile/graph_node.h"

namespace lockstep {

class GraphNodes {
 public:
  // Begins to record the nodes of the graph that `stream` is capturing.
  explicit GraphNodes(cudaStream_t stream);
  ~GraphNodes();
  GraphNodes(const GraphNodes&) = delete;
  GraphNodes& operator=(const GraphNodes&) = delete;

  // Returns all nodes that were captured so far, in the order of their capture. Must be called before the capture ends.
  std::vector<GraphNode> Take();

  struct Watch;

 private:
  std::shared_ptr<Watch> watch_;
  uint64_t handle_ = 0;  // the handle of the RecordFunction callbacks
};

}  // namespace lockstep
