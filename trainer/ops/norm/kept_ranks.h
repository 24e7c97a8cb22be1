// KeptRanks: keeps the pointer to the ranks that share a batch, from the forward of an operation to its backward.
#pragma once

#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trainer/ops/norm/batch_norm.h"

namespace lockstep::ops {

// An autograd node keeps no plain pointers, but holders of what is none of LibTorch's.
struct KeptRanks : torch::CustomClassHolder {
  explicit KeptRanks(NormRanks* ranks) : ranks(ranks) {}

  NormRanks* const ranks;
};

// In a Function's forward. `ranks`: null: the batch is this rank's own.
inline void KeepRanks(torch::autograd::AutogradContext* context, NormRanks* ranks) {
  context->saved_data["ranks"] = c10::IValue::make_capsule(c10::make_intrusive<KeptRanks>(ranks));
}

// In its backward.
inline NormRanks* RanksOf(torch::autograd::AutogradContext* context) {
  const auto capsule = context->saved_data["ranks"].toCapsule();
  return static_cast<const KeptRanks&>(*capsule).ranks;
}

}  // namespace lockstep::ops
