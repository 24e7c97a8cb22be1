// GraphNode: a kernel, copy or memset node of a CUDA graph, and the ranges (base/tensor/range.h) in which the node was
// captured.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

struct GraphNode {
  // The kernel's demangled name, or "Memcpy" or "Memset". The name is empty if the driver cannot report a kernel's
  // name.
  std::string name;
  std::string path;  // the ranges in which the node was captured, outermost first, joined by "/"
  // The FLOPs of the operation that launched the node, if they are known and the node is the operation's only node;
  // otherwise 0.
  int64_t flops = 0;
};

}  // namespace lockstep
