// GraphNode: a kernel, copy or memset of a CUDA graph, and where in the step it was captured.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

struct GraphNode {
  // The kernel's name, demangled, "Memcpy" or "Memset". A driver that cannot tell a kernel's name gives an empty one.
  std::string name;
  std::string path;  // the ranges (base/tensor/range.h), outermost first, separated by "/"
  // The FLOPs of the operation that launched the node, if they are known and this is the operation's only kernel.
  int64_t flops = 0;
};

}  // namespace lockstep
