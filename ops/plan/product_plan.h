// The keys and plans of matrix products. A key identifies a product, and a plan says which of cuBLASLt's algorithms
// computes the product. A plan file keeps keys and plans as text (plan_file.h). The code in this file needs no GPU.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>

#include "ops/common/float_type.h"

namespace lockstep::ops {

// The properties of a product on which the choice of an algorithm depends. The product is `to` = a b, where `to` is [m,
// n], a is [m, k] and b is [k, n]. A stride is the distance, in elements, between two adjacent rows of a row-major
// matrix, or between two adjacent columns of a column-major matrix (`..._by_columns` is true). `to` is row-major.
struct ProductKey {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  bool a_by_columns = false;
  int64_t a_stride = 0;
  bool b_by_columns = false;
  int64_t b_stride = 0;
  int64_t to_stride = 0;
  FloatType input = FloatType::kBFloat16;
  FloatType output = FloatType::kBFloat16;
  bool adds = false;
  bool has_bias = false;

  auto operator<=>(const ProductKey&) const = default;
};

// Returns a text with all fields of the key, for example "16384x2304x768 a=rows/768 b=columns/768 to=2304 bf16>bf16
// bias".
std::string Description(const ProductKey& key);

struct ProductPlan {
  std::array<uint64_t, 8> algorithm{};  // the bytes of a cublasLtMatmulAlgo_t
  int64_t workspace_bytes = 0;
  // The measured times, in microseconds, of this algorithm and of the first algorithm that cuBLASLt proposes; 0 if not
  // measured.
  double us = 0;
  double first_us = 0;

  bool operator==(const ProductPlan&) const = default;

  // Returns whether both plans use the same algorithm. The measured times of the plans may differ.
  bool RunsAs(const ProductPlan& other) const { return algorithm == other.algorithm; }
};

// TextOf() converts a plan to a text, and ParseProductPlan() converts such a text back to a plan. ParseProductPlan()
// returns nullopt if the text is not a plan.
std::string TextOf(const ProductPlan& plan);
std::optional<ProductPlan> ParseProductPlan(const std::string& text);

}  // namespace lockstep::ops
