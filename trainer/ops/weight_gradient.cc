#include "trainer/ops/weight_gradient.h"

#include <ATen/ops/empty.h>

#include "trainer/ops/matrix_product.h"

namespace lockstep::ops {

at::Tensor GradientToAddTo(const at::Tensor& weight) {
  if (!weight.requires_grad() || !weight.is_leaf()) return {};
  const at::Tensor& gradient = weight.grad();
  const bool fits = gradient.defined() && gradient.scalar_type() == at::kFloat &&
                    gradient.is_non_overlapping_and_dense() &&
                    gradient.strides() == weight.strides();
  return fits ? gradient : at::Tensor();
}

at::Tensor AddProduct(const at::Tensor& to, const at::Tensor& a, const at::Tensor& b) {
  if (to.defined()) {
    MatrixProduct(to, a, b, {.adds = true});
    return {};
  }
  const at::Tensor product = at::empty({a.size(0), b.size(1)}, a.options().dtype(at::kFloat));
  MatrixProduct(product, a, b);
  return product;
}

GradientSums NewGradientSums(const at::Tensor& to, int64_t columns, const at::TensorOptions& like) {
  if (to.defined()) return {{}, {to.mutable_data_ptr<float>(), /*adds=*/true}};
  const at::Tensor result = at::empty({columns}, like.dtype(at::kFloat));
  return {result, {result.mutable_data_ptr<float>(), /*adds=*/false}};
}

}  // namespace lockstep::ops
