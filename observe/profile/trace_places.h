// Adds to each kernel, copy and memset of a trace, and on a CPU to each operation, the step, the phase and the module
// in which it was launched.
//
// How: a kernel has the correlation number of the call that launched it. The ranges (base/tensor/range.h) around this
// call give the kernel's step, phase and module. In a backward pass an operation of autograd belongs to the module
// whose forward operation has the same sequence number. If there is no such forward operation, as for autograd
// functions that the model defines, the backward operation belongs to the last range that began with this sequence
// number or a lower one. The kernels of a CUDA graph all have the correlation number of the graph's launch. These
// kernels are matched with the graph's nodes (GraphNodes): the n-th kernel of a name, in the order of time, is the n-th
// node of this name, in the order of capture.
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

// The prefixes of the names of a step's range, "ProfilerStep#17", and of the range of a graph's launch, "graph 3".
inline constexpr std::string_view kStepRange = "ProfilerStep#";
inline constexpr std::string_view kGraphRange = "graph ";

// The names of the ranges that are phases of a step.
inline constexpr std::string_view kTracePhases[] = {"read",     "copy",   "forward", "backward",
                                                    "exchange", "update", "rest"};
bool IsTracePhase(std::string_view range);

// Adds "step", "phase" and "module", as far as they are found, and "flops" if they are known, to the "args" of events
// of `trace`, which is a Chrome trace as Kineto writes it. If `on_gpu` is true, the events are the kernels, copies and
// memsets; otherwise they are the operations. An operation also gets "self_us", its time without the operations nested
// in it.
void AddPlaces(nlohmann::json& trace, const NodesOfGraphs& graphs, bool on_gpu);

// Returns whether `event` is work of a device: a kernel, a copy or a memset.
bool IsDeviceWork(const nlohmann::json& event);

}  // namespace lockstep
