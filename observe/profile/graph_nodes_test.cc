#include "observe/profile/graph_nodes.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <optional>

#include "base/tensor/range.h"

namespace lockstep {
namespace {

// Checks that ranges and operations may end after the GraphNodes object is destroyed. Without a GPU nothing is
// captured, so Take() returns no nodes. tests/gpu/gpu_profile_test.py tests nodes on a GPU.

TEST(GraphNodes, RangesAndOperationsMayEndAfterIt) {
  std::optional<Range> range;
  for (int capture = 0; capture < 2; ++capture) {
    GraphNodes nodes(nullptr);
    range.reset();  // ends the range of the previous capture
    range.emplace("forward");
    const Range module("module");
    const at::Tensor weight = torch::ones({2, 2}, torch::requires_grad());
    at::mm(weight, weight).sum().backward();
    EXPECT_TRUE(nodes.Take().empty());
  }
  range.reset();
}

}  // namespace
}  // namespace lockstep
