#include "trainer/ops/common/rounded_weight.h"

#include <utility>

#include "base/memory_scope.h"

namespace lockstep::ops {
namespace {

thread_local WeightCopies* in_use = nullptr;

}  // namespace

WeightCopies::Use::Use(WeightCopies* copies) : before_(std::exchange(in_use, copies)) {}

WeightCopies::Use::~Use() { in_use = before_; }

WeightCopies* WeightCopies::InUse() { return in_use; }

at::Tensor WeightCopies::Of(const at::Tensor& weight) const {
  const auto copy = copies_.find(weight.const_data_ptr());
  return copy == copies_.end() ? at::Tensor() : copy->second;
}

void WeightCopies::Forget(const at::Tensor& weight) { copies_.erase(weight.const_data_ptr()); }

std::vector<at::Tensor> WeightCopies::All() const {
  std::vector<at::Tensor> copies;
  for (const auto& [weight, copy] : copies_) copies.push_back(copy);
  return copies;
}

at::Tensor Rounded(const at::Tensor& weight, at::ScalarType type) {
  // What is not trained the optimizer does not see.
  const bool is_kept = in_use != nullptr && weight.requires_grad() && weight.is_leaf() &&
                       weight.scalar_type() == at::kFloat && type != at::kFloat &&
                       weight.is_non_overlapping_and_dense();
  if (!is_kept) return weight.to(type);
  at::Tensor copy = in_use->Of(weight);
  if (copy.defined() && copy.scalar_type() == type) return copy;
  const MemoryScope scope(MemoryOwner::kParameters);
  const at::Tensor rounded = weight.to(type);
  if (!in_use->settled_ && !copy.defined()) {
    in_use->copies_[weight.const_data_ptr()] = rounded;
  }
  return rounded;
}

}  // namespace lockstep::ops
