#include "ops/product/weight_gradient.h"

#include <ATen/ops/empty.h>

#include "base/tensor/gradient_memory.h"
#include "ops/product/matrix_product.h"

namespace lockstep::ops {

at::Tensor GradientToAddTo(const at::Tensor& weight) {
  if (!weight.requires_grad() || !weight.is_leaf()) return {};
  const at::Tensor& gradient = weight.grad();
  const bool fits = gradient.defined() && gradient.scalar_type() == at::kFloat &&
                    gradient.is_non_overlapping_and_dense() &&
                    gradient.strides() == weight.strides();
  return fits ? gradient : at::Tensor();
}

bool TakeOver(const at::Tensor& to) {
  GradientMemory* memory = GradientMemory::Of(to);
  return memory != nullptr && memory->TakeOver();
}

void AddGradient(const at::Tensor& to, const at::Tensor& gradient) {
  if (TakeOver(to)) {
    to.copy_(gradient);
  } else {
    to.add_(gradient);
  }
}

void PrepareToAdd(const at::Tensor& to) {
  if (GradientMemory* memory = GradientMemory::Of(to)) memory->ZeroIfUnset(to);
}

at::Tensor AddProduct(const at::Tensor& to, const at::Tensor& a, const at::Tensor& b) {
  if (to.defined()) {
    // TakeOver() must get `to` itself, because a view of `to` has no GradientMemory.
    const bool adds = !TakeOver(to);
    MatrixProduct(to.view({a.size(0), b.size(1)}), a, b, {.adds = adds});
    return {};
  }
  return MatrixProduct(a, b, at::kFloat);
}

GradientSums NewGradientSums(const at::Tensor& to, int64_t columns, const at::TensorOptions& like) {
  if (to.defined()) {
    const bool adds = !TakeOver(to);
    return {{}, {to.mutable_data_ptr<float>(), adds}};
  }
  const at::Tensor result = at::empty({columns}, like.dtype(at::kFloat));
  return {result, {result.mutable_data_ptr<float>(), /*adds=*/false}};
}

}  // namespace lockstep::ops
