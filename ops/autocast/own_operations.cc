#include "ops/autocast/own_operations.h"

#include <ATen/ATen.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/add_cuda_dispatch.h>
#include <ATen/ops/cat_cuda_dispatch.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <vector>

#include "ops/autocast/strided_sum.h"
#include "ops/common/launch_arguments.h"
#include "ops/convolution/convolution.h"
#include "ops/convolution/depthwise_convolution.h"
#include "ops/convolution/stem_convolution.h"
#include "ops/product/columns_linear.h"

namespace lockstep::ops {
namespace {

using MaybeTensor = std::optional<at::Tensor>;

constexpr auto kLast = at::MemoryFormat::ChannelsLast;
// Autocast's dispatch keys: that for GPUs, and that for the simulated ("foretold") GPU
// (trainer/run/foretold_kernels.h).
const c10::DispatchKeySet kAutocast{c10::DispatchKey::AutocastCUDA,
                                    c10::DispatchKey::AutocastPrivateUse1};

// Returns the 16-bit type to which autocast rounds. Returns nullopt if autocast is off or rounds to another type.
std::optional<at::ScalarType> RoundedType() {
  if (!at::autocast::is_autocast_enabled(at::kCUDA)) return std::nullopt;
  const at::ScalarType type = at::autocast::get_autocast_dtype(at::kCUDA);
  return type == at::kHalf || type == at::kBFloat16 ? std::optional(type) : std::nullopt;
}

// Returns the tensor rounded to `type` as autocast would round it, or the tensor itself if `type` is nullopt.
at::Tensor Rounded16(const at::Tensor& tensor, std::optional<at::ScalarType> type) {
  if (!type || !tensor.defined()) return tensor;
  if (tensor.is_cuda()) return at::autocast::cached_cast(*type, tensor, at::kCUDA);
  const bool rounds =
      tensor.is_meta() && tensor.is_floating_point() && tensor.scalar_type() != at::kDouble;
  return rounds ? tensor.to(*type) : tensor;
}

MaybeTensor Rounded16(const MaybeTensor& tensor, std::optional<at::ScalarType> type) {
  return tensor ? MaybeTensor(Rounded16(*tensor, type)) : tensor;
}

bool IsDefined(const MaybeTensor& tensor) { return tensor && tensor->defined(); }

bool IsWeight(const at::Tensor& weight, const at::Tensor& x, int64_t dimensions) {
  return IsOnGpu(x) && x.is_floating_point() && x.scalar_type() != at::kDouble && x.numel() > 0 &&
         weight.device() == x.device() && weight.scalar_type() == at::kFloat &&
         weight.dim() == dimensions && weight.numel() > 0;
}

bool IsEverywhere(at::IntArrayRef numbers, int64_t number) {
  return std::ranges::all_of(numbers, [&](int64_t other) { return other == number; });
}

// Returns the number (for example the stride) that applies to both height and width, or nullopt if the numbers differ.
// `numbers` has one number for both dimensions, or one for each.
std::optional<int64_t> Single(at::IntArrayRef numbers) {
  const bool is_single = !numbers.empty() && IsEverywhere(numbers, numbers[0]);
  return is_single ? std::optional(numbers[0]) : std::nullopt;
}

at::Tensor WithBias(const at::Tensor& y, const MaybeTensor& bias) {
  return IsDefined(bias) ? y.add_(bias->to(y.scalar_type()).view({1, -1, 1, 1})) : y;
}

// Computes a convolution with Lockstep's operations. Returns nullopt if LibTorch has to compute the convolution.
MaybeTensor OwnConvolution(const at::Tensor& x, const at::Tensor& weight, const MaybeTensor& bias,
                           at::IntArrayRef strides, at::IntArrayRef paddings,
                           at::IntArrayRef dilations, int64_t groups,
                           std::optional<at::ScalarType> type) {
  const std::optional<int64_t> stride = Single(strides);
  const std::optional<int64_t> padding = Single(paddings);
  const bool is_square = type && IsWeight(weight, x, 4) && x.dim() == 4 && stride && *stride > 0 &&
                         padding && *padding >= 0 && IsEverywhere(dilations, 1);
  const bool gives_last =
      x.suggest_memory_format() == kLast || weight.suggest_memory_format() == kLast;
  if (!is_square || !gives_last || groups < 1 || x.size(1) != groups * weight.size(1)) {
    return std::nullopt;
  }
  const at::Tensor input = Rounded16(x, type);
  if (groups > 1 && HasDepthwiseKernels(input, weight, *stride, *padding)) {
    const bool adds = IsDefined(bias) && IsFloatVector(*bias, weight.size(0), weight);
    const at::Tensor y =
        DepthwiseConvolution(input, weight, adds ? *bias : at::Tensor(), *stride, *padding);
    return adds ? y : WithBias(y, bias);
  }
  if (groups > 1 && !JoinsGroups(input, weight)) return std::nullopt;
  // The convolution planner supports only multiples of 8 channels.
  constexpr int64_t kPlanned = 8;
  if (x.size(1) % kPlanned != 0) {
    const bool is_stem =
        weight.size(2) == 7 && weight.size(3) == 7 && *stride == 2 && *padding == 3;
    if (!is_stem) return std::nullopt;
    return WithBias(StemConvolution(input, weight), bias);
  }
  if (weight.size(0) % kPlanned != 0) return std::nullopt;
  return WithBias(Convolution(input.contiguous(kLast), weight.contiguous(kLast), *stride, *padding),
                  bias);
}

at::Tensor Conv2d(const at::Tensor& x, const at::Tensor& weight, const MaybeTensor& bias,
                  at::IntArrayRef strides, at::IntArrayRef paddings, at::IntArrayRef dilations,
                  int64_t groups) {
  const std::optional<at::ScalarType> type = RoundedType();
  const MaybeTensor y = OwnConvolution(x, weight, bias, strides, paddings, dilations, groups, type);
  if (y) return *y;
  const c10::impl::ExcludeDispatchKeyGuard once(kAutocast);
  return at::conv2d(Rounded16(x, type), Rounded16(weight, type), Rounded16(bias, type), strides,
                    paddings, dilations, groups);
}

// Computes a convolution with the arguments of aten::_convolution, which traced TorchScript files call.
at::Tensor AnyConvolution(const at::Tensor& x, const at::Tensor& weight, const MaybeTensor& bias,
                          at::IntArrayRef strides, at::IntArrayRef paddings,
                          at::IntArrayRef dilations, bool transposed,
                          at::IntArrayRef output_padding, int64_t groups, bool benchmark,
                          bool deterministic, bool cudnn_enabled, bool allow_tf32) {
  if (!transposed && x.dim() == 4) {
    return Conv2d(x, weight, bias, strides, paddings, dilations, groups);
  }
  const std::optional<at::ScalarType> type = RoundedType();
  const c10::impl::ExcludeDispatchKeyGuard once(kAutocast);
  return at::_convolution(Rounded16(x, type), Rounded16(weight, type), Rounded16(bias, type),
                          strides, paddings, dilations, transposed, output_padding, groups,
                          benchmark, deterministic, cudnn_enabled, allow_tf32);
}

// Returns whether Lockstep's operations compute a linear layer under autocast that rounds to `type`.
bool IsOwnLinear(const at::Tensor& x, const at::Tensor& weight, const MaybeTensor& bias,
                 std::optional<at::ScalarType> type) {
  return type && IsWeight(weight, x, 2) && weight.is_contiguous() && x.dim() > 1 &&
         x.size(-1) == weight.size(1) &&
         (!IsDefined(bias) || IsFloatVector(*bias, weight.size(0), x));
}

at::Tensor LinearOf(const at::Tensor& x, const at::Tensor& weight, const MaybeTensor& bias) {
  const std::optional<at::ScalarType> type = RoundedType();
  if (IsOwnLinear(x, weight, bias, type)) {
    const at::Tensor input = Rounded16(x, type), added = IsDefined(bias) ? *bias : at::Tensor();
    return IsForColumnsLinear(input, weight)
               ? ColumnsLinear(input, weight, added)
               : Linear(input, weight, added, WeightLayout::kOutputsInputs);
  }
  const c10::impl::ExcludeDispatchKeyGuard once(kAutocast);
  return at::linear(Rounded16(x, type), Rounded16(weight, type), Rounded16(bias, type));
}

at::Tensor View(const at::Tensor& x, at::IntArrayRef sizes) {
  const bool lies_otherwise =
      !x.is_contiguous() && ((x.dim() == 4 && x.is_contiguous(kLast)) ||
                             (x.dim() == 3 && x.transpose(1, 2).is_contiguous()));
  const bool may_copy = RoundedType() && IsOnGpu(x) && lies_otherwise;
  const c10::impl::ExcludeDispatchKeyGuard once(kAutocast);
  return may_copy ? at::reshape(x, sizes) : x.view(sizes);
}

// Returns a copy, as aten::clone does.
at::Tensor Clone(const at::Tensor& x, std::optional<at::MemoryFormat> format) {
  const at::Tensor copy =
      at::empty_like(x, x.options(), format.value_or(at::MemoryFormat::Preserve));
  if (!StridedSum(x, /*b=*/{}, copy)) copy.copy_(x);
  return copy;
}

// Returns the sum in the layout of the operand that lies without gaps, if there is a kernel for that.
at::Tensor Add(const at::Tensor& a, const at::Tensor& b, const at::Scalar& factor) {
  const at::Tensor& dense = a.is_non_overlapping_and_dense() ? a : b;
  const bool is_plain = a.is_cuda() && b.is_cuda() && Is16Bit(a) &&
                        a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() &&
                        factor.equal(1);
  if (is_plain && a.strides() != b.strides() && dense.is_non_overlapping_and_dense()) {
    const at::Tensor sum = at::empty_like(dense, at::MemoryFormat::Preserve);
    if (StridedSum(a, b, sum)) return sum;
  }
  return at::cuda::add(a, b, factor);
}

at::Tensor& AddInPlace(at::Tensor& a, const at::Tensor& b, const at::Scalar& factor) {
  const bool is_sum = a.is_cuda() && factor.equal(1) && a.sizes() == b.sizes() &&
                      a.is_non_overlapping_and_dense() && !a.is_alias_of(b) && StridedSum(a, b, a);
  return is_sum ? a : at::cuda::add_(a, b, factor);
}

// Returns whether LibTorch's concatenation of the tensors is slow: large tensors of one 16-bit type, of which one does not
// lie contiguously in the result's format.
bool JoinsStrided(const at::ITensorListRef& tensors, at::MemoryFormat format) {
  constexpr int64_t kLarge = 1 << 19;
  const at::Tensor& first = tensors.front();
  return std::ranges::all_of(tensors,
                             [&](const at::Tensor& tensor) {
                               return tensor.is_cuda() && Is16Bit(tensor) &&
                                      tensor.device() == first.device() &&
                                      tensor.scalar_type() == first.scalar_type() &&
                                      tensor.dim() == first.dim() && tensor.dim() > 0 &&
                                      tensor.numel() >= kLarge;
                             }) &&
         !std::ranges::all_of(
             tensors, [&](const at::Tensor& tensor) { return tensor.is_contiguous(format); });
}

// Returns the concatenation, in channels-last format if all tensors are, as LibTorch does.
at::Tensor Cat(const at::ITensorListRef& tensors, int64_t dim) {
  if (tensors.size() == 0) return at::cuda::cat(tensors, dim);
  const bool are_last = std::ranges::all_of(tensors, [](const at::Tensor& tensor) {
    return tensor.dim() == 4 && tensor.suggest_memory_format() == kLast;
  });
  const at::MemoryFormat format = are_last ? kLast : at::MemoryFormat::Contiguous;
  if (!JoinsStrided(tensors, format)) return at::cuda::cat(tensors, dim);
  const at::Tensor& first = tensors.front();
  const int64_t along = at::maybe_wrap_dim(dim, first.dim());
  std::vector<int64_t> sizes = first.sizes().vec();
  sizes[along] = 0;
  for (const at::Tensor& tensor : tensors) {
    for (int64_t i = 0; i < first.dim(); ++i) {
      if (i != along && tensor.size(i) != sizes[i]) return at::cuda::cat(tensors, dim);
    }
    sizes[along] += tensor.size(along);
  }
  const at::Tensor joined = at::empty(sizes, first.options(), format);
  int64_t begin = 0;
  for (const at::Tensor& tensor : tensors) {
    const at::Tensor part = joined.narrow(along, begin, tensor.size(along));
    if (!StridedSum(tensor, /*b=*/{}, part)) part.copy_(tensor);
    begin += tensor.size(along);
  }
  return joined;
}

struct OwnOperation {
  std::string_view name;
  torch::CppFunction (*kernel)();
};

constexpr OwnOperation kOwnOperations[] = {
    {"conv2d", [] { return torch::CppFunction(TORCH_FN(Conv2d)); }},
    {"_convolution", [] { return torch::CppFunction(TORCH_FN(AnyConvolution)); }},
    {"linear", [] { return torch::CppFunction(TORCH_FN(LinearOf)); }},
    {"view", [] { return torch::CppFunction(TORCH_FN(View)); }}};

// Suppresses LibTorch's warning that a registered kernel replaces a kernel of LibTorch.
class NoWarning : public c10::WarningHandler {
 public:
  void process(const c10::Warning& /*warning*/) override {}
};

}  // namespace

void RegisterOwnOperations(torch::Library& library) {
  for (const auto& [name, kernel] : kOwnOperations) library.impl(name.data(), kernel());
}

LinearFork LinearAndInput(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  const std::optional<at::ScalarType> type = RoundedType();
  const bool is_own = IsOwnLinear(x, weight, bias, type) && x.scalar_type() == *type &&
                      !IsForColumnsLinear(x, weight);
  if (is_own) return ForkedLinear(x, weight, bias, WeightLayout::kOutputsInputs);
  return {at::linear(x, weight, bias.defined() ? MaybeTensor(bias) : std::nullopt), x};
}

bool IsOwnOperation(std::string_view name) {
  return std::ranges::find(kOwnOperations, name, &OwnOperation::name) != std::end(kOwnOperations);
}

void UseOwnOperations() {
  static const auto& library = *[] {
    NoWarning no_warning;
    const c10::WarningUtils::WarningHandlerGuard quiet(&no_warning);
    // The library is never deleted, because that would end the registration.
    auto made = new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::AutocastCUDA,
                                   __FILE__, __LINE__);
    RegisterOwnOperations(*made);
    return made;
  }();
  static_cast<void>(library);
  static const auto& on_gpu = *[] {
    NoWarning no_warning;
    const c10::WarningUtils::WarningHandlerGuard quiet(&no_warning);
    auto made = new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::CUDA, __FILE__,
                                   __LINE__);
    made->impl("clone", TORCH_FN(Clone));
    made->impl("add.Tensor", TORCH_FN(Add));
    made->impl("add_.Tensor", TORCH_FN(AddInPlace));
    made->impl("cat", TORCH_FN(Cat));
    return made;
  }();
  static_cast<void>(on_gpu);
}

}  // namespace lockstep::ops
