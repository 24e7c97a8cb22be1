#include "ops/generated/tensor_layout.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>
#include <utility>

namespace lockstep::ops {

std::vector<size_t> OrderFor(size_t rank, const std::vector<size_t>& order) {
  if (order.size() == rank) return order;
  std::vector<size_t> plain(rank);
  std::iota(plain.begin(), plain.end(), size_t{0});
  return plain;
}

std::vector<size_t> OrderOf(const std::vector<TensorLayout>& tensors) {
  const auto largest = std::ranges::max_element(tensors, {}, [](const TensorLayout& tensor) {
    int64_t elements = 1;
    for (size_t i = 0; i < tensor.sizes.size(); ++i) {
      if (tensor.strides[i] != 0) elements *= tensor.sizes[i];
    }
    return std::pair(elements, tensor.sizes.size());
  });
  if (largest == tensors.end()) return {};
  std::vector<size_t> order(largest->sizes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  // Dimensions of size 1, whose strides mean nothing, come first, so that lanes are in a dimension that has elements.
  std::ranges::stable_sort(order, std::greater(), [&](size_t i) {
    return std::pair(largest->sizes[i] == 1, largest->strides[i]);
  });
  return order;
}

TensorLayout DenseLayout(ElementType type, const Sizes& sizes, const std::vector<size_t>& order) {
  TensorLayout layout{.type = type, .sizes = sizes, .strides = Sizes(sizes.size(), 1)};
  int64_t stride = 1;
  const std::vector<size_t> of = OrderFor(sizes.size(), order);
  for (size_t k = of.size(); k-- > 0;) {
    layout.strides[of[k]] = stride;
    stride *= sizes[of[k]];
  }
  return layout;
}

}  // namespace lockstep::ops
