// ForetellProgram(): goes through a program with tensors that have sizes and no memory, and checks each call.
//
// Promise: if ForetellProgram() returns, then each operation of the program keeps its contract (contract.h) for inputs
// of these sizes, the sizes of its results are known, and none of them is too large. Nothing was computed, and no memory
// was allocated for values.
//
// The sizes of all values follow from those of the inputs and of the module's tensors, because the list of operations
// has none whose result's size depends on values. What is not known is checked in each call (Node::unforeseen): values
// of tensors, their strides, and which floating-point tensors autocast rounds. META has no autocast. So under autocast
// all tensors of 16 and 32 bits are foretold as float32, as if nothing were rounded.
//
// what can fail -> what the caller sees -> the test that shows it (models/imported/exported_graph_test.cc)
//   a call that breaks a contract; sizes that depend on values; a number that is too large
//     -> Error (kUsage) that names the file, the graph, the operation, its module and the line of the user's code
//     -> ExportedGraph.RefusesBeforeItRuns
//   a tensor of more bytes than there may be -> likewise, with its sizes -> ExportedGraph.RefusesSizesThatFitNowhere
//   an operation whose result's sizes depend on what autocast rounds -> likewise
//     -> ExportedGraph.RefusesSizesThatFollowFromAutocast
//   an operation that gives a tensor of the module other sizes -> likewise, with its name
//     -> ExportedGraph.KeepsTheSizesOfTheModule
#pragma once

#include <c10/core/Device.h>

#include <cstdint>

#include "models/imported/node_values.h"
#include "models/imported/program.h"

namespace lockstep::exported {

// `values` has the inputs and the module's tensors, on any device; the other values are None. `program` must be as
// ReadProgram() returned it. `rounds` says whether it will run under autocast. Returns the output, on META. Throws Error
// (kUsage).
at::Tensor ForetellProgram(const Program& program, Values values, int64_t most_bytes, bool rounds);

// Returns the number of bytes that a tensor on `device` can have at most: on a CPU, what the machine has and this
// process may use. A GPU's memory is known to its allocator, which refuses what it lacks.
int64_t MostBytes(at::Device device);

}  // namespace lockstep::exported
