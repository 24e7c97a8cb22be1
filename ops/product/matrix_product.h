// Computes matrix products of 16-bit values with the fastest of cuBLASLt's algorithms. at::mm uses the first algorithm
// that cuBLASLt's heuristic proposes, which can be 20 % slower than another algorithm.
//
// Promise: MatrixProduct() gives the same result as at::mm within rounding. All sums are float32. The search for the
// fastest algorithm runs only once for each combination of GPU model, cuBLASLt version, shape, layouts and types. The
// choice is kept in a file (plan_choices.h). Partial sums are never rounded to 16 bits, and are always added in the
// same order. An algorithm therefore gives the same bits in each run on GPUs of one model.
//
// A search (plan_search.h) uses the product's own matrices. Its candidates are the algorithms that cuBLASLt's heuristic
// proposes for 32 MiB of workspace (kMostWorkspace_bytes), and the neighbours of the best of these algorithms, if
// cublasLtMatmulAlgoCheck accepts them. A product that overwrites its output `to` is timed on `to` itself, because the
// product will overwrite `to` anyway. A product that adds to `to` is timed on another tensor with the sizes, strides
// and type of `to`.
//
// what can fail -> what the caller sees -> the test that shows it (ops/product/matrix_product_test.cc)
//   sizes or types that do not fit together -> c10::Error -> MatrixProduct.SaysWhatDoesNotFit
//   a product that has no plan (see Multiply()) -> at::mm's result -> MatrixProductTest.IsTheProductOfEverySize
//   cuBLASLt refuses a product or fails -> c10::Error with the product and cuBLASLt's message -> (none)
//   a file that is damaged -> a new search -> ProductPlannerTest.SearchesAgainWhereTheFileIsDamaged
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "ops/plan/plan_choices.h"
#include "ops/plan/product_plan.h"

namespace lockstep::ops {

struct ProductOptions {
  bool adds = false;  // whether the product is added to the content of `to`
  // A bias that is added to each row: contiguous [n] of `to`'s type, or undefined. It cannot be used together with
  // `adds`.
  at::Tensor bias = {};
  // Whether a plan of this product may be searched for. Callers set `searches` to false for products that may occur
  // only once, such as those of an evaluation.
  bool searches = true;
};

using ProductPlanReport = PlanReport<ProductKey, ProductPlan>;

// Chooses plans for matrix products, and computes products with the chosen plans. Any number of threads may use one
// ProductPlanner at the same time.
class ProductPlanner {
 public:
  // Makes a planner whose plan files are in `folder`. If `folder` is empty, no files are kept.
  explicit ProductPlanner(std::string folder);

  // Computes to = a b; `options` says whether the product is added to `to` and whether there is a bias. `a` is [m, k]
  // and `b` is [k, n]. Both have the same type and may have any strides. `to` is [m, n] of this type, or float32 if `a`
  // and `b` are float16 or bfloat16. There is no gradient. `to` must not share memory with a or b.
  //
  // A product has a plan if `a` and `b` are float16 or bfloat16 on a GPU, and m, n and k are multiples of 8 and not 0.
  // The matrices must be row-major or column-major, and the addresses and strides of the matrices must be multiples of
  // 16 bytes. If there is a bias, `to` must be row-major and have 16 bits, and the address of the bias must be a
  // multiple of 16 bytes. at::mm or at::addmm computes all other products, whatever their type and device.
  void Multiply(const at::Tensor& to, const at::Tensor& a, const at::Tensor& b,
                const ProductOptions& options = {});

  // Returns the plans that were chosen so far.
  std::vector<ProductPlanReport> Plans() const { return choices_.Reports(); }

 private:
  PlanChoices<ProductKey, ProductPlan> choices_;
};

// The name of the event that a planned product records with at::RecordFunction. The inputs of the event are a and b.
inline constexpr char kMatrixProductEvent[] = "lockstep::matrix_product";

// Calls Multiply() of the planner of this process, whose files are in CacheFolder().
void MatrixProduct(const at::Tensor& to, const at::Tensor& a, const at::Tensor& b,
                   const ProductOptions& options = {});

// Returns a b as a new contiguous matrix of the type `type`, computed by the planner of this process.
at::Tensor MatrixProduct(const at::Tensor& a, const at::Tensor& b, at::ScalarType type);

// Returns the Plans() of the planner of this process.
std::vector<ProductPlanReport> ProductPlans();

}  // namespace lockstep::ops
