#include "ops/common/rounded_weight.h"

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
  return copy == copies_.end() ? at::Tensor() : copy->second.tensor;
}

void WeightCopies::Forget(const at::Tensor& weight) { copies_.erase(weight.const_data_ptr()); }

std::vector<at::Tensor> WeightCopies::All() const {
  std::vector<at::Tensor> copies;
  for (const auto& [weight, copy] : copies_) copies.push_back(copy.tensor);
  return copies;
}

at::Tensor Rounded(const at::Tensor& weight, at::ScalarType type) {
  // No copy is kept for a weight that is not trained, because the optimizer would not update such a copy.
  const bool is_kept = in_use != nullptr && weight.requires_grad() && weight.is_leaf() &&
                       weight.scalar_type() == at::kFloat && type != at::kFloat &&
                       weight.is_non_overlapping_and_dense();
  if (!is_kept) return weight.to(type);
  const auto version = static_cast<int64_t>(weight._version());
  const auto kept = in_use->copies_.find(weight.const_data_ptr());
  if (kept != in_use->copies_.end() && kept->second.tensor.scalar_type() == type) {
    if (std::exchange(kept->second.version, version) != version) kept->second.tensor.copy_(weight);
    return kept->second.tensor;
  }
  const MemoryScope scope(MemoryOwner::kParameters);
  const at::Tensor rounded = weight.to(type);
  if (!in_use->settled_ && kept == in_use->copies_.end()) {
    in_use->copies_[weight.const_data_ptr()] = {rounded, version};
  }
  return rounded;
}

}  // namespace lockstep::ops
