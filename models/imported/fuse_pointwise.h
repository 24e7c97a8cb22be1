// Fuses the element-wise operations that the other patterns have not fused, such as sums, products and activations:
// each group of them becomes one generated kernel (ops/generated/pointwise.h).
//
// A group is a tree: only nodes of the group use its intermediate results. An in-place operation can be part of a group
// if it writes to an intermediate result. The table in fuse_pointwise.cc lists the operations. To add an operation, add
// a line with its forward expression to the table; the backward is derived from this expression.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "models/imported/rewriter.h"
#include "ops/generated/pointwise.h"

namespace lockstep::exported {

struct PointwiseGroup {
  std::vector<int64_t> nodes;   // in the order of the program
  std::vector<int64_t> inputs;  // values that the group reads
  std::shared_ptr<const ops::PointwiseFunction> function;
};

// Returns the group whose last node is `node`; nothing if `node` is not an element-wise operation or would be the
// group's only node.
std::optional<PointwiseGroup> PointwiseGroupOf(const Rewriter& rewriter, int64_t node);

void FusePointwise(Rewriter& rewriter);

}  // namespace lockstep::exported
