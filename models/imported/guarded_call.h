// Guarded calls: a few of LibTorch's operations are called in another way than through the dispatcher alone, because an
// exported model, which may be a stranger's, must not see old memory or read beyond its tensors.
//
//   empty, empty_like, new_empty   They return zeros instead of what happened to be in memory.
//   group_norm, native_group_norm  On a CPU they get images in the standard layout. The backward of LibTorch 2.11 for
//                                  channels-last images reads beyond its buffers.
//   convolutions in 16 bits        On a CPU, those of volumes and those that step across an image that gets at most four
//                                  pixels wide compute in float32, from the rounded tensors, and round the result. On a
//                                  processor with AMX, oneDNN's kernels for these read memory that nobody has written:
//                                  seen in the forward pass where the result is one pixel wide, in the gradient of the
//                                  weight up to three pixels, and in the gradient of volumes of any size.
//
// The results are those of LibTorch's operations within rounding; their memory layout may differ.
//
// what can fail -> what the caller sees: as for the operation itself. ExportedGraph.GivesOutNoOldMemory,
// ComputesGroupNormInTheStandardLayout and ComputesNarrowConvolutionsInFloat32 show the guards
// (models/imported/exported_graph_test.cc).
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <string_view>
#include <vector>

namespace lockstep::exported {

// Calls an operation with the arguments on the stack, and replaces them by the results.
using Caller = void (*)(const c10::OperatorHandle& operation, std::vector<c10::IValue>& stack);

// Returns what calls the operation, such as "aten::empty".
Caller CallerOf(std::string_view operation);

}  // namespace lockstep::exported
