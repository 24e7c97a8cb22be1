// Fuses what the other patterns have left, such as sums, products, activations, reductions and norms: each group of such
// operations is computed by generated kernels (ops/generated/generated.h).
//
// All users of a group's intermediate results belong to the group. A convolution's bias is added by the group that reads
// its result. An in-place operation can be part of a group if it writes to an intermediate result. The table in
// fuse_generated.cc lists the operations. To add an operation, add a line with its forward terms to the table; the backward
// is derived from these terms.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "models/imported/rewriter.h"
#include "ops/generated/generated.h"

namespace lockstep::exported {

// A convolution or linear layer whose bias a group adds to its result.
struct LayersBias {
  int64_t result;  // the value of the result, which only the group uses
  int64_t bias;    // the value of the bias
  int64_t node;    // the convolution or linear layer
  // Whether the bias is of channels, the second dimension; otherwise it is of the last dimension.
  bool is_channels;
};

struct GeneratedGroup {
  std::vector<int64_t> nodes;   // in the order of the program
  std::vector<int64_t> inputs;  // values that the group reads
  std::vector<LayersBias> biases{};
  bool draws = false;  // whether it has a dropout that drops elements
  ops::BuildTerms build;
  ops::GeneratedTwin twin;
};

// Values that all their users want in some form.
struct WantedForms {
  std::set<int64_t> rounded;     // to 16 bits under autocast
  std::set<int64_t> contiguous;  // in memory
};

// Returns what the users of the values want. Fused nodes do not count as users.
WantedForms WantedFormsOf(const Rewriter& rewriter);

// Returns the group whose last node is `node`; nothing if generated kernels would not pay.
std::optional<GeneratedGroup> GeneratedGroupOf(const Rewriter& rewriter, int64_t node,
                                               const WantedForms& forms);

// `forms` is what WantedFormsOf() returned before any pattern was fused.
void FuseGenerated(Rewriter& rewriter, const WantedForms& forms);

}  // namespace lockstep::exported
