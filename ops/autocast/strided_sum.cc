#include "ops/autocast/strided_sum.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <vector>

#include "ops/autocast/strided_sum_kernel.h"
#include "ops/common/launch_arguments.h"

namespace lockstep::ops {
namespace {

constexpr int64_t kPack = 8;

// A dimension: its size, and the strides of a, b and the result, in elements.
struct Dimension {
  int64_t size, a, b, to;

  // Returns whether this dimension, the outer one, and `inner` can be one.
  bool Continues(const Dimension& inner) const {
    return a == inner.a * inner.size && b == inner.b * inner.size && to == inner.to * inner.size;
  }
};

// Returns the packs of the tensors; nothing if they cannot be read in packs, or lie alike and without gaps.
std::optional<StridedPacks> PacksOf(const at::Tensor& a, const at::Tensor& b,
                                    const at::Tensor& to) {
  std::vector<Dimension> all;
  for (int64_t i = 0; i < to.dim(); ++i) {
    if (to.size(i) > 1) all.push_back({to.size(i), a.stride(i), b.stride(i), to.stride(i)});
  }
  std::ranges::stable_sort(all, std::ranges::greater(), &Dimension::to);
  std::vector<Dimension> dims;
  for (const Dimension& dim : all) {
    if (!dims.empty() && dims.back().Continues(dim)) {
      dims.back() = {dims.back().size * dim.size, dim.a, dim.b, dim.to};
    } else {
      dims.push_back(dim);
    }
  }
  if (dims.size() < 2 || dims.size() > StridedPacks::kMostDims) return std::nullopt;
  Dimension& last = dims.back();
  if (last.a != 1 || last.b != 1 || last.to != 1 || last.size % kPack != 0) return std::nullopt;
  last.size /= kPack;
  StridedPacks packs{.dims = static_cast<int>(dims.size())};
  int64_t count = 1;
  for (size_t i = 0; i < dims.size(); ++i) {
    const auto& [size, of_a, of_b, of_to] = dims[i];
    const bool is_last = i + 1 == dims.size();
    if (!is_last && (of_a % kPack != 0 || of_b % kPack != 0 || of_to % kPack != 0)) {
      return std::nullopt;
    }
    count *= size;
    if (count > std::numeric_limits<int>::max() / 2) return std::nullopt;
    packs.sizes[i] = static_cast<int>(size);
    packs.a_strides[i] = is_last ? 1 : of_a / kPack;
    packs.b_strides[i] = is_last ? 1 : of_b / kPack;
    packs.to_strides[i] = is_last ? 1 : of_to / kPack;
  }
  packs.packs = static_cast<int>(count);
  return packs;
}

}  // namespace

bool StridedSum(const at::Tensor& a, const at::Tensor& b, const at::Tensor& to) {
  const at::Tensor& other = b.defined() ? b : a;
  const auto fits = [&](const at::Tensor& tensor) {
    return tensor.is_cuda() && tensor.layout() == at::kStrided && tensor.device() == to.device() &&
           tensor.scalar_type() == to.scalar_type() && tensor.sizes() == to.sizes() &&
           !tensor.is_conj() && !tensor.is_neg() && !tensor._is_zerotensor();
  };
  if (!fits(a) || !fits(other) || !fits(to) || !Is16Bit(to) || to.numel() == 0 || !IsAligned(a) ||
      !IsAligned(other) || !IsAligned(to)) {
    return false;
  }
  const std::optional<StridedPacks> packs = PacksOf(a, other, to);
  if (!packs) return false;
  Launch(to, [&](cudaStream_t stream) {
    LaunchStridedSum(a.const_data_ptr(), b.defined() ? b.const_data_ptr() : nullptr,
                     to.mutable_data_ptr(), TypeOf(to), *packs, stream);
  });
  return true;
}

}  // namespace lockstep::ops
