// The arguments of aten::scaled_dot_product_attention.
#pragma once

#include <cstddef>
#include <vector>

#include "models/imported/rewriter.h"

namespace lockstep::exported {

enum AttentionArgument : size_t { kQuery, kKey, kValue, kMask, kDropout, kCausal, kScale, kShares };

// Returns whether it is known before the graph runs how much attention drops, whether it is causal, and which factor its
// scores have.
inline bool AreOptionsKnown(const std::vector<Argument>& arguments) {
  const Argument& scale = arguments[kScale];
  return IsConstant(arguments[kDropout]) && arguments[kDropout].constant.isDouble() &&
         IsConstant(arguments[kCausal]) && arguments[kCausal].constant.isBool() &&
         IsConstant(scale) && (scale.constant.isNone() || scale.constant.isDouble());
}

}  // namespace lockstep::exported
