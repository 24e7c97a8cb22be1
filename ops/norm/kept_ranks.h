// KeptRanks: keeps the pointer to the ranks that share a batch, from the forward of an operation to its backward.
#pragma once

#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/custom_function.h>

#include "ops/norm/norm_ranks.h"

namespace lockstep::ops {

// An autograd node cannot keep a plain pointer to an object that is not LibTorch's, but it can keep a
// CustomClassHolder. This holder contains the pointer.
struct KeptRanks : torch::CustomClassHolder {
  explicit KeptRanks(NormRanks* ranks) : ranks(ranks) {}

  NormRanks* const ranks;
};

// Call it in a Function's forward. `ranks` is null if the batch belongs to this rank alone.
inline void KeepRanks(torch::autograd::AutogradContext* context, NormRanks* ranks) {
  context->saved_data["ranks"] = c10::IValue::make_capsule(c10::make_intrusive<KeptRanks>(ranks));
}

// Call it in the Function's backward.
inline NormRanks* RanksOf(torch::autograd::AutogradContext* context) {
  const auto capsule = context->saved_data["ranks"].toCapsule();
  return static_cast<const KeptRanks&>(*capsule).ranks;
}

}  // namespace lockstep::ops
