// TensorLayout: how a tensor lies in memory, as generated kernels read and write it.
#pragma once

#include <cstddef>
#include <vector>

#include "ops/generated/tensor_terms.h"

namespace lockstep::ops {

// A bool is read as 0 or 1.
enum class ElementType { kFloat32, kFloat16, kBFloat16, kBool };

struct TensorLayout {
  ElementType type = ElementType::kFloat32;
  Sizes sizes, strides;
  bool aligned = true;  // whether it begins at a multiple of 16 bytes

  bool operator==(const TensorLayout&) const = default;
};

// Returns the order of the dimensions, the outermost first, in which the largest of the tensors lies in memory. An
// expanded tensor counts as what it takes in memory.
std::vector<size_t> OrderOf(const std::vector<TensorLayout>& tensors);

// Returns `order` if it has `rank` dimensions, and otherwise the order 0, 1, ....
std::vector<size_t> OrderFor(size_t rank, const std::vector<size_t>& order);

// Returns the layout of a tensor without gaps whose dimensions have this order. If it has another number of dimensions,
// the layout is LibTorch's contiguous one.
TensorLayout DenseLayout(ElementType type, const Sizes& sizes, const std::vector<size_t>& order);

}  // namespace lockstep::ops
