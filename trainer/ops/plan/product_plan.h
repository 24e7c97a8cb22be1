// The keys and plans of matrix products. A key says which product it is, and a plan says which of cuBLASLt's algorithms
// computes the product. A plan file keeps both as text (plan_file.h). Nothing here needs a GPU.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>

#include "trainer/ops/common/float_type.h"

namespace lockstep::ops {

// to [m, n] = a [m, k] b [k, n], all that an algorithm is chosen by. Strides are those between rows, or
// between columns where a matrix lies by columns, in elements; `to` lies by rows.
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

// "16384x2304x768 a=rows/768 b=columns/768 to=2304 bf16>bf16 bias": all of it.
std::string Description(const ProductKey& key);

struct ProductPlan {
  std::array<uint64_t, 8> algorithm{};  // a cublasLtMatmulAlgo_t
  int64_t workspace_bytes = 0;
  // Measured, of this algorithm and of the first that cuBLASLt proposes; 0: not measured.
  double us = 0;
  double first_us = 0;

  bool operator==(const ProductPlan&) const = default;

  // Whether it is the same algorithm, however fast it was.
  bool RunsAs(const ProductPlan& other) const { return algorithm == other.algorithm; }
};

// A plan's text, and back; nothing: it is none.
std::string TextOf(const ProductPlan& plan);
std::optional<ProductPlan> ParseProductPlan(const std::string& text);

}  // namespace lockstep::ops
