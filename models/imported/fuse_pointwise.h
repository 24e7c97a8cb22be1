// Fuses what the other patterns have left: operations of LibTorch's that compute each element from the elements of
// their inputs at the same place, such as sums, products and activations, become one generated kernel
// (ops/generated/pointwise.h).
//
// A group is a tree: what lies within it is used there only. In-place operations take part where they write to what
// lies within. The table in fuse_pointwise.cc says which operations there are; a new one is a line there, its forward
// alone.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "models/imported/rewriter.h"
#include "ops/generated/pointwise.h"

namespace lockstep::exported {

struct PointwiseGroup {
  std::vector<int64_t> nodes;   // in order
  std::vector<int64_t> inputs;  // values
  std::shared_ptr<const ops::PointwiseFunction> function;
};

// The group that ends with `node`; nothing if it is no such operation, or the only one.
std::optional<PointwiseGroup> PointwiseGroupOf(const Rewriter& rewriter, int64_t node);

void FusePointwise(Rewriter& rewriter);

}  // namespace lockstep::exported
