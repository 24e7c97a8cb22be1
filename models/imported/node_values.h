// A call of a node needs, besides the operation itself: its arguments, made of values, the numbers that
// other nodes compute, and its results, which become values.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>

#include <vector>

#include "models/imported/program.h"

namespace lockstep::exported {

using Values = std::vector<c10::IValue>;

// Returns the argument for a call, given the values that are known at that time. `device` is the one on which the graph
// runs.
c10::IValue Made(const Argument& argument, const Values& values, at::Device device);

// Computes the number of a node with this Sym. Throws c10::Error.
c10::IValue ComputedNumber(Sym sym, const std::vector<c10::IValue>& arguments);

// Moves the results of the node's operation from `stack` into the values. Throws c10::Error if a list does not have as
// many tensors as the file says.
void Keep(const Node& node, std::vector<c10::IValue>& stack, Values& values);

}  // namespace lockstep::exported
