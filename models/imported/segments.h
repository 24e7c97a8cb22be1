// CutsOf(): divides an exported graph into segments for activation checkpointing (models/activation_checkpoint.h).
//
// A good place for a cut is one at which few of the live tensors need a gradient: between two blocks of a residual
// network or a transformer only one does. A graph of n nodes gets about sqrt(n) segments of about sqrt(n) nodes each.
// The memory for the tensors at the cuts and for the activations of one segment then grows with sqrt(n), and not with n
// (Chen et al. 2016).
//
// Promise: a segment that is computed twice gives the same results the second time. Therefore no cut lies between the
// definition of a tensor and an operation that changes it in place. An operation that changes a tensor of the module in
// place is called only once, and operations that read the tensor before the change are not computed twice. No two
// segments that are computed twice use the same parameter, because autograd would then compute the parameter's gradient
// in two parts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

#include "models/imported/program.h"

namespace lockstep::exported {

struct Segment {
  size_t begin = 0, end = 0;  // nodes [begin, end)
  bool twice = false;         // whether backward may compute the segment again
  // The values that the segment uses and that earlier nodes or the graph's inputs define, without the module's tensors:
  // `inputs` are those that may need a gradient, `given` the others.
  std::vector<int64_t> inputs{}, given{};
  // The values that the segment defines and that are used after it: `outputs` are those that may need a gradient,
  // `made` the others.
  std::vector<int64_t> outputs{}, made{};
};

struct Cuts {
  std::vector<Segment> segments;
  std::vector<bool> once;  // for each node: whether it changes a tensor of the module in place
};

// Divides a graph into segments. `trainable` holds the values of the parameters that require a gradient. The last
// segment is computed only once, because backward begins with it. The first segment is computed only once, too, because
// none of its inputs needs a gradient.
Cuts CutsOf(const Program& program, const std::set<int64_t>& trainable);

}  // namespace lockstep::exported
