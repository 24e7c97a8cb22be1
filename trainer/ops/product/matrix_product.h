// Computes matrix products of 16-bit values with the fastest of cuBLASLt's algorithms. at::mm takes the first algorithm
// that cuBLASLt's heuristic proposes, which can be a fifth slower than another.
//
// Promise: MatrixProduct() gives the same result as at::mm (within rounding), summed in float32. The search for the
// fastest algorithm runs only once for each combination of GPU model, cuBLASLt version, shape, layouts and types. The
// choice is kept in a file (plan_choices.h). Partial sums are never rounded to 16 bits, nor added in an order that
// depends on time. An algorithm gives the same bits each time on GPUs of one model.
//
// A search (plan_search.h) uses the product's own matrices. Its candidates are the algorithms that cuBLASLt's heuristic
// proposes for 32 MiB of workspace (kMostWorkspace_bytes), and the neighbours of the best of these algorithms, if
// cublasLtMatmulAlgoCheck accepts them. A product that overwrites its output `to` is timed on `to` itself, because it
// will be overwritten anyway. A product that adds to `to` is timed on another tensor of the same kind.
//
// what can fail -> what the caller sees -> the test that shows it (trainer/ops/product/matrix_product_test.cc)
//   sizes or types that do not fit together -> c10::Error -> MatrixProduct.SaysWhatDoesNotFit
//   a product that it does not plan (below) -> at::mm's -> MatrixProductTest.IsTheProductOfEverySize
//   cuBLASLt refuses a product or fails -> c10::Error with the product and cuBLASLt's words -> (none)
//   a file that is damaged -> a new search -> ProductPlannerTest.SearchesAgainWhereTheFileIsDamaged
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "trainer/ops/plan/plan_choices.h"
#include "trainer/ops/plan/product_plan.h"

namespace lockstep::ops {

struct ProductOptions {
  bool adds = false;  // to what `to` holds
  // Undefined, or contiguous [n] of `to`'s type, to be added to each row; not together with `adds`.
  at::Tensor bias = {};
  // False: do not search for this product, such as those of an evaluation, whose shapes may come once.
  bool searches = true;
};

using ProductPlanReport = PlanReport<ProductKey, ProductPlan>;

// Any number of threads may use one at a time.
class ProductPlanner {
 public:
  // Where its files lie; empty: it keeps none.
  explicit ProductPlanner(std::string folder);

  // to = a b, with the options. a: [m, k] and b: [k, n], float16 or bfloat16, of any strides; to: [m, n], of
  // their type or float32. No gradient; it must share no memory with a and b.
  //
  // Planned are products on a GPU whose m, n and k are multiples of 8 and not 0, of matrices that lie by rows
  // or by columns, where the beginnings and the strides are multiples of 16 bytes; a bias wants a `to` that
  // lies by rows. All others are at::mm's or at::addmm's, as are those of other types, on any device.
  void Multiply(const at::Tensor& to, const at::Tensor& a, const at::Tensor& b,
                const ProductOptions& options = {});

  // What was planned so far.
  std::vector<ProductPlanReport> Plans() const { return choices_.Reports(); }

 private:
  PlanChoices<ProductKey, ProductPlan> choices_;
};

// What at::RecordFunction calls a planned product; its inputs are a and b.
inline constexpr char kMatrixProductEvent[] = "lockstep::matrix_product";

// By the process's planner, whose files lie in CacheFolder().
void MatrixProduct(const at::Tensor& to, const at::Tensor& a, const at::Tensor& b,
                   const ProductOptions& options = {});

// Likewise, to a new contiguous matrix of `type`.
at::Tensor MatrixProduct(const at::Tensor& a, const at::Tensor& b, at::ScalarType type);

// Its Plans().
std::vector<ProductPlanReport> ProductPlans();

}  // namespace lockstep::ops
