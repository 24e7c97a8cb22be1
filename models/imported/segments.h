// Cuts: an exported graph cut into segments for activation checkpointing (models/activation_checkpoint.h).
//
// A good place is where few tensors are alive that a gradient reaches: between the blocks of a residual net or a
// transformer that is one. A segment has about as many nodes as there are segments, so what is kept, the tensors at the
// cuts and the activations of one segment, is about the square root of all (Chen et al. 2016).
//
// Promise: a segment that may be computed twice gives the same the second time. So no cut lies between a tensor and an
// operation that changes it in place; what changes a tensor of the module is called once, and what reads it before is
// not called again; and no such segment shares a parameter with another one, which would give it its gradient in two
// parts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

#include "models/imported/program.h"

namespace lockstep::exported {

struct Segment {
  size_t begin = 0, end = 0;  // nodes [begin, end)
  bool twice = false;         // whether backward may compute it again
  // The values that arise before the segment and are used in it, besides the module's tensors: `inputs` are those that
  // a gradient may reach, `given` the rest.
  std::vector<int64_t> inputs{}, given{};
  // The values that arise in the segment and are used after it, split likewise.
  std::vector<int64_t> outputs{}, made{};
};

struct Cuts {
  std::vector<Segment> segments;
  std::vector<bool> once;  // by node: whether it changes a tensor of the module in place
};

// Cuts a graph. `trainable` are the values of the parameters that require a gradient. The last segment is computed
// once, because backward begins with it, and so is the first, whose inputs need no gradient.
Cuts CutsOf(const Program& program, const std::set<int64_t>& trainable);

}  // namespace lockstep::exported
