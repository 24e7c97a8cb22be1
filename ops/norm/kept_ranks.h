// KeptRanks: keeps the pointer to the ranks that share a batch, from the forward of an operation to its backward.
#pragma once

#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/custom_function.h>

#include "ops/norm/norm_ranks.h"

namespace lockstep::ops {

// A holder of the pointer. An autograd node cannot keep a plain pointer to an object that is not LibTorch's, but an
// autograd node can keep a CustomClassHolder.
struct KeptRanks : torch::CustomClassHolder {
  explicit KeptRanks(NormRanks* ranks) : ranks(ranks) {}

  NormRanks* const ranks;
};

// Saves `ranks` for backward. The forward of a torch::autograd::Function calls this function. `ranks` is null if the
// batch belongs to this rank alone.
inline void KeepRanks(torch::autograd::AutogradContext* context, NormRanks* ranks) {
  context->saved_data["ranks"] = c10::IValue::make_capsule(c10::make_intrusive<KeptRanks>(ranks));
}

// Returns the ranks that KeepRanks() saved. The backward of the same torch::autograd::Function calls this function.
inline NormRanks* RanksOf(torch::autograd::AutogradContext* context) {
  const auto capsule = context->saved_data["ranks"].toCapsule();
  return static_cast<const KeptRanks&>(*capsule).ranks;
}

}  // namespace lockstep::ops
