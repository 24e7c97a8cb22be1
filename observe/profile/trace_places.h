// Says of each kernel, copy and memset of a trace, and on a CPU of each operation, in which step, phase and module it
// was launched.
//
// How: a kernel has the correlation number of the call that launched it. The ranges (base/tensor/range.h) around this
// call say where it belongs. In a backward pass an operation of autograd belongs to the module whose forward operation
// has the same sequence number, or, if none has it, as in functions of the model's own, to the last range that began
// with this number or a lower one. The kernels of a CUDA graph all have the correlation number of the graph's launch.
// They belong to the graph's nodes (GraphNodes): the n-th kernel of a name is the n-th node of this name, in the order
// of time on each side.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "observe/profile/graph_node.h"

namespace lockstep {

// The nodes of each graph, by the name of the range in which the graph is launched.
using NodesOfGraphs = std::map<std::string, std::vector<GraphNode>>;

// The range of a step, "ProfilerStep#17", and of a graph's launch, "graph 3".
inline constexpr std::string_view kStepRange = "ProfilerStep#";
inline constexpr std::string_view kGraphRange = "graph ";

// The ranges that are phases of a step.
inline constexpr std::string_view kTracePhases[] = {"read",     "copy",   "forward", "backward",
                                                    "exchange", "update", "rest"};
bool IsTracePhase(std::string_view range);

// Adds to the "args" of these events of `trace` (a Chrome trace as Kineto writes it): "step", "phase" and "module", as
// far as they are found, and "flops" if they are known. An operation on a CPU gets "self_us" besides, its time without
// the operations within it. `on_gpu`: whether the trace has kernels; otherwise the operations count.
void AddPlaces(nlohmann::json& trace, const NodesOfGraphs& graphs, bool on_gpu);

// Whether `event` is work of a device: a kernel, a copy or a memset.
bool IsDeviceWork(const nlohmann::json& event);

}  // namespace lockstep
