#include "trainer/run/foretold_kernels.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "base/ceil_divide.h"
#include "ops/autocast/own_operations.h"

namespace lockstep {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::Variable;
using torch::autograd::variable_list;

// A dispatch key of LibTorch that nothing else in this program uses. It belongs to PrivateUse1, which LibTorch reserves
// for devices that others add, and this program has no such device.
constexpr c10::DispatchKey kForetelling = c10::DispatchKey::AutocastPrivateUse1;

thread_local bool fills_tensors = true;

void Fill(const c10::OperatorHandle& operation, torch::jit::Stack* stack) {
  if (!fills_tensors) {
    // The tensor to fill is the first argument. This tensor stays on the stack as the operation's result.
    torch::jit::drop(*stack, operation.schema().arguments().size() - 1);
    return;
  }
  const c10::impl::ExcludeDispatchKeyGuard once(kForetelling);
  operation.callBoxed(stack);
}

// Autocast --------------------------------------------------------------------

template <typename Convert>
void ConvertArguments(torch::jit::Stack& stack, size_t count, const Convert& convert) {
  for (size_t i = stack.size() - count; i < stack.size(); ++i) {
    c10::IValue& value = stack[i];
    if (value.isTensor()) {
      value = convert(value.toTensor());
    } else if (value.isTensorList()) {
      std::vector<at::Tensor> tensors = value.toTensorVector();
      for (at::Tensor& tensor : tensors) tensor = convert(tensor);
      value = tensors;
    }
  }
}

enum class To { k16Bit, kFloat32 };

template <To kTo>
void Round(const c10::OperatorHandle& operation, torch::jit::Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard once(kForetelling);
  if (at::autocast::is_autocast_enabled(at::kCUDA)) {
    const at::ScalarType type =
        kTo == To::k16Bit ? at::autocast::get_autocast_dtype(at::kCUDA) : at::kFloat;
    ConvertArguments(*stack, operation.schema().arguments().size(), [&](const at::Tensor& tensor) {
      const bool converts = tensor.defined() && tensor.is_meta() && tensor.is_floating_point() &&
                            tensor.scalar_type() != at::kDouble;
      return converts ? tensor.to(type) : tensor;
    });
  }
  operation.callBoxed(stack);
}

// Registers Round<kTo>() for the operations `names`, each of which is "op" or "op, overload", as in LibTorch's lists.
// Leaves out the operations that ops::RegisterOwnOperations() registers.
template <To kTo>
void RegisterRounding(torch::Library& library, std::initializer_list<std::string> names) {
  for (std::string name : names) {
    if (const size_t comma = name.find(", "); comma != std::string::npos)
      name.replace(comma, 2, ".");
    if (ops::IsOwnOperation(name)) continue;
    library.impl(name.c_str(), torch::CppFunction::makeFromBoxedFunction<&Round<kTo>>());
  }
}

// Convolutions ----------------------------------------------------------------

// Returns the memory format of a convolution's tensors. With cuDNN all of them are channels-last if the input or the
// weight is.
at::MemoryFormat FormatOf(const at::Tensor& x, const at::Tensor& weight) {
  const at::MemoryFormat format = x.suggest_memory_format();
  return format == at::MemoryFormat::Contiguous ? weight.suggest_memory_format() : format;
}

at::Tensor Convolution(const at::Tensor& x, const at::Tensor& weight,
                       const std::optional<at::Tensor>&, at::IntArrayRef stride,
                       at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed,
                       at::IntArrayRef output_padding, int64_t groups) {
  const auto of = [](at::IntArrayRef values, int64_t i) {
    return values.size() == 1 ? values[0] : values[i];
  };
  std::vector<int64_t> sizes{x.size(0), transposed ? weight.size(1) * groups : weight.size(0)};
  for (int64_t i = 0; i < x.dim() - 2; ++i) {
    const int64_t kernel = of(dilation, i) * (weight.size(i + 2) - 1) + 1;
    const int64_t size = x.size(i + 2);
    sizes.push_back(transposed ? (size - 1) * of(stride, i) - 2 * of(padding, i) + kernel +
                                     of(output_padding, i)
                               : (size + 2 * of(padding, i) - kernel) / of(stride, i) + 1);
  }
  const at::MemoryFormat format = FormatOf(x, weight);
  // cuDNN needs the input and the weight in the same memory format, so ATen copies a tensor whose format differs.
  const at::Tensor input = x.contiguous(format);
  const at::Tensor filter = weight.contiguous(format);
  const at::Tensor y = at::empty(sizes, input.options(), format);
  constexpr int64_t kChannels = 8;  // tensor cores need a multiple of this many channels
  if (x.element_size() == 2 && x.size(1) % kChannels != 0) {
    const int64_t padded = x.numel() / x.size(1) * RoundUp(x.size(1), kChannels);
    const at::Tensor workspace = at::empty({padded + y.numel()}, x.options());
  }
  return y;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> ConvolutionBackward(
    const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight, at::OptionalIntArrayRef,
    at::IntArrayRef, at::IntArrayRef, at::IntArrayRef, bool, at::IntArrayRef, int64_t,
    std::array<bool, 3> wanted) {
  const at::MemoryFormat format = FormatOf(x, weight);
  const at::Tensor gradient = dy.contiguous(format);
  const at::Tensor input = x.contiguous(format);
  const at::Tensor filter = weight.contiguous(format);
  std::tuple<at::Tensor, at::Tensor, at::Tensor> results;
  if (wanted[0]) std::get<0>(results) = at::empty_like(input);
  if (wanted[1]) std::get<1>(results) = at::empty_like(filter);
  if (wanted[2]) std::get<2>(results) = at::empty({dy.size(1)}, weight.options());
  return results;
}

// Attention -------------------------------------------------------------------

class Attention : public Function<Attention> {
 public:
  static Variable forward(AutogradContext* context, const Variable& query, const Variable& key,
                          const Variable& value) {
    // The output has the same memory layout as the queries: [batch, tokens, heads, features].
    std::vector<int64_t> sizes = query.sizes().vec();
    sizes.back() = value.size(-1);
    const at::Tensor out =
        query.dim() == 4
            ? at::empty({sizes[0], sizes[2], sizes[1], sizes[3]}, query.options()).transpose(1, 2)
            : at::empty(sizes, query.options());
    sizes.pop_back();
    const at::Tensor log_sums = at::empty(sizes, query.options().dtype(at::kFloat));
    context->save_for_backward({query, key, value, out, log_sums});
    return out;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor d_out = gradients[0].contiguous();
    const at::Tensor sums = at::empty_like(saved[4]);
    return {at::empty_like(saved[0]), at::empty_like(saved[1]), at::empty_like(saved[2])};
  }
};

at::Tensor ScaledDotProductAttention(const at::Tensor& query, const at::Tensor& key,
                                     const at::Tensor& value, const std::optional<at::Tensor>&,
                                     double, bool, std::optional<double>, bool) {
  return Attention::apply(query, key, value);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, c10::SymInt, c10::SymInt, at::Tensor,
           at::Tensor, at::Tensor>
FlashAttention(const at::Tensor& query, const at::Tensor&, const at::Tensor& value, double, bool,
               bool, std::optional<double>) {
  const at::Tensor out =
      at::empty({query.size(0), query.size(2), query.size(1), value.size(3)}, query.options())
          .transpose(1, 2);
  const at::Tensor log_sums =
      at::empty({query.size(0), query.size(1), query.size(2)}, query.options().dtype(at::kFloat));
  const at::Tensor state = at::empty({}, query.options().dtype(at::kLong));
  return {out, log_sums, {}, {}, query.size(2), query.size(2), state, state, {}};
}

// NOLINTBEGIN(performance-unnecessary-value-param): LibTorch compares the signature with its own
std::tuple<at::Tensor, at::Tensor, at::Tensor> FlashAttentionBackward(
    const at::Tensor&, const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
    const at::Tensor&, const at::Tensor& log_sums, const at::Tensor&, const at::Tensor&,
    c10::SymInt, c10::SymInt, double, bool, const at::Tensor&, const at::Tensor&,
    std::optional<double>) {
  constexpr int64_t kRows = 128;  // queries in a tile of the kernel
  const int64_t tokens = (query.size(2) + kRows - 1) / kRows * kRows;
  const at::Tensor sums = at::empty_like(log_sums);
  const at::Tensor d_query_sums = at::empty({query.size(0), query.size(1), tokens, query.size(3)},
                                            query.options().dtype(at::kFloat));
  return {at::empty_like(query), at::empty_like(key), at::empty_like(value)};
}
// NOLINTEND(performance-unnecessary-value-param)

// Recurrent layers ------------------------------------------------------------

// Reserve() and Workspace() allocate about as much memory as cuDNN 9 allocated for LSTMs on one H100, with 100 to 4096
// sequences of 28 to 128 time steps of 20 to 256 numbers, and 1 to 4 layers of 100 to 512 units. The sizes differ from
// cuDNN's by up to 15 % if a layer has fewer than 128 units, and otherwise by up to 2 %.
at::Tensor Reserve(const at::Tensor& y, int64_t layers) {
  return at::empty({(6 * layers - 1) * y.numel()}, y.options());
}
at::Tensor Workspace(const at::Tensor& input, const at::Tensor& y, int64_t layers) {
  constexpr double kAlways_bytes = 17.2e6;
  constexpr int64_t kFewUnits = 128;
  const auto of_layers = static_cast<double>(layers);
  const double of_unit =
      y.size(-1) <= kFewUnits ? 16.85 + 2.1875 * of_layers : 3.7 + 0.93 * of_layers;
  const double values =
      of_unit * static_cast<double>(y.numel()) + static_cast<double>(input.numel());
  const double bytes = kAlways_bytes + values * static_cast<double>(y.element_size());
  return at::empty({static_cast<int64_t>(bytes)}, y.options().dtype(at::kByte));
}

class Lstm : public Function<Lstm> {
 public:
  static variable_list forward(AutogradContext* context, const Variable& x, at::TensorList state,
                               at::TensorList weights, int64_t layers, bool both_ways,
                               bool batch_first) {
    const at::Tensor input = batch_first ? x.transpose(0, 1).contiguous() : x.contiguous();
    const int64_t ways = both_ways ? 2 : 1;
    const int64_t hidden = state[0].size(2);
    int64_t numbers = 0;
    for (const at::Tensor& weight : weights) numbers += weight.numel();
    const at::Tensor flat = at::empty({numbers}, x.options());
    const at::Tensor y = at::empty({input.size(0), input.size(1), ways * hidden}, x.options());
    const at::Tensor h = at::empty_like(state[0]);
    const at::Tensor c = at::empty_like(state[1]);
    const at::Tensor reserve = Reserve(y, layers);
    const at::Tensor workspace = Workspace(input, y, layers);
    context->save_for_backward({input, flat, y, reserve, state[0], state[1]});
    context->saved_data["layers"] = layers;
    context->saved_data["batch_first"] = batch_first;
    std::vector<at::Tensor> like;
    for (const at::Tensor& weight : weights) like.push_back(weight.detach());
    context->saved_data["weights"] = like;
    return {batch_first ? y.transpose(0, 1) : y, h, c};
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const int64_t layers = context->saved_data["layers"].toInt();
    const bool batch_first = context->saved_data["batch_first"].toBool();
    const at::Tensor& input = saved[0];
    at::Tensor dx;
    {
      const at::Tensor dy =
          batch_first ? gradients[0].transpose(0, 1).contiguous() : gradients[0].contiguous();
      dx = at::empty_like(input);
      const at::Tensor workspace = Workspace(input, saved[2], layers);
    }
    const at::Tensor again = at::empty_like(input);
    const at::Tensor d_flat = at::empty_like(saved[1]);
    { const at::Tensor workspace = Workspace(input, saved[2], layers); }
    variable_list results{batch_first ? dx.transpose(0, 1) : dx, at::Tensor(), at::Tensor()};
    int64_t begin = 0;
    for (const at::Tensor& weight : context->saved_data["weights"].toTensorVector()) {
      results.push_back(d_flat.narrow(0, begin, weight.numel()).view(weight.sizes()));
      begin += weight.numel();
    }
    results.resize(results.size() + 3);
    return results;
  }
};

std::tuple<at::Tensor, at::Tensor, at::Tensor> LstmInput(const at::Tensor& x, at::TensorList state,
                                                         at::TensorList weights, bool,
                                                         int64_t layers, double, bool,
                                                         bool both_ways, bool batch_first) {
  const variable_list results = Lstm::apply(x, state, weights, layers, both_ways, batch_first);
  return {results[0], results[1], results[2]};
}

// Others ----------------------------------------------------------------------

std::tuple<at::Tensor, at::Tensor> NativeDropout(const at::Tensor& x, double, std::optional<bool>) {
  return {at::empty_like(x), at::empty_like(x, x.options().dtype(at::kBool))};
}

at::Tensor NativeDropoutBackward(const at::Tensor& dy, const at::Tensor&, double) {
  return at::empty_like(dy);
}

at::Tensor Dropout(const at::Tensor& x, double share, bool train) {
  return train && share > 0 ? std::get<0>(at::native_dropout(x, share, train)) : x;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> NativeBatchNorm(const at::Tensor& x,
                                                               const std::optional<at::Tensor>&,
                                                               const std::optional<at::Tensor>&,
                                                               const std::optional<at::Tensor>&,
                                                               const std::optional<at::Tensor>&,
                                                               bool training, double, double) {
  const at::TensorOptions floats = x.options().dtype(at::kFloat);
  const int64_t channels = training ? x.size(1) : 0;
  return {at::empty_like(x), at::empty({channels}, floats), at::empty({channels}, floats)};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> NativeBatchNormBackward(
    const at::Tensor& dy, const at::Tensor& x, const std::optional<at::Tensor>&,
    const std::optional<at::Tensor>&, const std::optional<at::Tensor>&,
    const std::optional<at::Tensor>&, const std::optional<at::Tensor>&, bool, double,
    std::array<bool, 3>) {
  const at::Tensor gradient = dy.contiguous(x.suggest_memory_format());
  const at::TensorOptions floats = x.options().dtype(at::kFloat);
  return {at::empty_like(x), at::empty({x.size(1)}, floats), at::empty({x.size(1)}, floats)};
}

// Returns a tensor like the largest argument, as element-wise functions and their backward functions do.
void LikeLargest(const c10::OperatorHandle& operation, torch::jit::Stack* stack) {
  at::Tensor largest;
  for (const c10::IValue& value : torch::jit::pop(*stack, operation.schema().arguments().size())) {
    if (!value.isTensor() || !value.toTensor().defined()) continue;
    const at::Tensor& tensor = value.toTensor();
    // A bool argument is a condition, which should not determine the dtype of the result. So the next tensor argument
    // replaces a bool argument, even if the next argument is not larger.
    if (!largest.defined() || tensor.numel() > largest.numel() ||
        largest.scalar_type() == at::kBool) {
      largest = tensor;
    }
  }
  torch::jit::push(*stack, at::empty_like(largest));
}

// Leaves the first argument on the stack as the result, as in-place operations do.
void InPlace(const c10::OperatorHandle& operation, torch::jit::Stack* stack) {
  torch::jit::drop(*stack, operation.schema().arguments().size() - 1);
}

at::Tensor IndexSelect(const at::Tensor& x, int64_t dimension, const at::Tensor& index) {
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes[at::maybe_wrap_dim(dimension, x.dim())] = index.numel();
  return at::empty(sizes, x.options());
}

at::Tensor AdaptiveAveragePool(const at::Tensor& x, at::IntArrayRef size) {
  std::vector<int64_t> sizes = x.sizes().vec();
  std::ranges::copy(size, sizes.end() - 2);
  return at::empty(sizes, x.options(), x.suggest_memory_format());
}

at::Tensor EmbeddingBackward(const at::Tensor& dy, const at::Tensor&, int64_t words, int64_t,
                             bool) {
  return at::empty({words, dy.size(-1)}, dy.options());
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> LayerNormBackward(
    const at::Tensor& dy, const at::Tensor& x, at::IntArrayRef shape, const at::Tensor&,
    const at::Tensor&, const std::optional<at::Tensor>&, const std::optional<at::Tensor>&,
    std::array<bool, 3>) {
  const at::Tensor gradient = dy.contiguous();
  return {at::empty_like(x), at::empty(shape, x.options()), at::empty(shape, x.options())};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> GroupNormBackward(
    const at::Tensor& dy, const at::Tensor& x, const at::Tensor&, const at::Tensor&,
    const std::optional<at::Tensor>&, int64_t, int64_t channels, int64_t, int64_t,
    std::array<bool, 3>) {
  const at::Tensor gradient = dy.contiguous();
  return {at::empty_like(x), at::empty({channels}, x.options()),
          at::empty({channels}, x.options())};
}

at::Tensor Variance(const at::Tensor& x, at::OptionalIntArrayRef dimensions,
                    const std::optional<at::Scalar>&, bool keep) {
  return at::mean(x, dimensions, keep);
}

std::tuple<at::Tensor, at::Tensor> VarianceAndMean(const at::Tensor& x,
                                                   at::OptionalIntArrayRef dimensions,
                                                   const std::optional<at::Scalar>&, bool keep) {
  return {at::mean(x, dimensions, keep), at::mean(x, dimensions, keep)};
}

// Returns tensors for the losses of pixels and for the total weight, as LibTorch's nll_loss2d_forward does.
std::tuple<at::Tensor, at::Tensor> PixelLosses(const at::Tensor& x, const at::Tensor& target,
                                               const std::optional<at::Tensor>&, int64_t reduction,
                                               int64_t) {
  const at::Tensor losses = reduction == at::Reduction::None
                                ? at::empty(target.sizes(), x.options())
                                : at::empty({}, x.options());
  return {losses, at::empty({}, x.options())};
}

template <void (*kKernel)(const c10::OperatorHandle&, torch::jit::Stack*)>
void RegisterAll(torch::Library& library, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    library.impl(name, torch::CppFunction::makeFromBoxedFunction<kKernel>());
  }
}

struct Kernels {
  Kernels()
      : meta(torch::Library::IMPL, "aten", c10::DispatchKey::Meta, __FILE__, __LINE__),
        with_gradients(torch::Library::IMPL, "aten", c10::DispatchKey::AutogradMeta, __FILE__,
                       __LINE__),
        foretelling(torch::Library::IMPL, "aten", kForetelling, __FILE__, __LINE__),
        others(torch::Library::IMPL, "_", kForetelling, __FILE__, __LINE__) {
    RegisterAll<&LikeLargest>(
        meta, {"relu", "hardswish", "hardswish_backward", "hardtanh", "hardtanh_backward", "roll",
               "flip", "_prelu_kernel", "logit", "mse_loss_backward", "where.self",
               "_adaptive_avg_pool2d_backward", "log_sigmoid_backward", "glu_backward",
               "nll_loss2d_backward"});
    RegisterAll<&InPlace>(meta, {"relu_", "hardswish_", "hardtanh_", "masked_fill_.Scalar",
                                 "masked_fill_.Tensor", "bernoulli_.float"});
    meta.impl("convolution", TORCH_FN(Convolution));
    meta.impl("convolution_backward", TORCH_FN(ConvolutionBackward));
    meta.impl("_scaled_dot_product_flash_attention", TORCH_FN(FlashAttention));
    meta.impl("_scaled_dot_product_flash_attention_backward", TORCH_FN(FlashAttentionBackward));
    meta.impl("native_dropout", TORCH_FN(NativeDropout));
    meta.impl("native_dropout_backward", TORCH_FN(NativeDropoutBackward));
    meta.impl("native_batch_norm", TORCH_FN(NativeBatchNorm));
    meta.impl("native_batch_norm_backward", TORCH_FN(NativeBatchNormBackward));
    meta.impl("native_layer_norm_backward", TORCH_FN(LayerNormBackward));
    meta.impl("native_group_norm_backward", TORCH_FN(GroupNormBackward));
    meta.impl("index_select", TORCH_FN(IndexSelect));
    meta.impl("_adaptive_avg_pool2d", TORCH_FN(AdaptiveAveragePool));
    meta.impl("embedding_dense_backward", TORCH_FN(EmbeddingBackward));
    meta.impl("var.correction", TORCH_FN(Variance));
    meta.impl("std.correction", TORCH_FN(Variance));
    meta.impl("var_mean.correction", TORCH_FN(VarianceAndMean));
    meta.impl("nll_loss2d_forward", TORCH_FN(PixelLosses));
    with_gradients.impl("scaled_dot_product_attention", TORCH_FN(ScaledDotProductAttention));
    with_gradients.impl("lstm.input", TORCH_FN(LstmInput));
    with_gradients.impl("dropout", TORCH_FN(Dropout));
    RegisterAll<&Fill>(foretelling, {"normal_", "uniform_", "random_", "zero_", "fill_.Scalar"});
#define LOCKSTEP_NAME(...) #__VA_ARGS__,
    RegisterRounding<To::k16Bit>(foretelling,
                                 {AT_FORALL_LOWER_PRECISION_FP(LOCKSTEP_NAME) "lstm.input"});
    ops::RegisterOwnOperations(foretelling);
    RegisterRounding<To::kFloat32>(
        foretelling, {AT_FORALL_FP32(LOCKSTEP_NAME) AT_FORALL_FP32_SET_OPT_DTYPE(LOCKSTEP_NAME)});
#undef LOCKSTEP_NAME
    others.fallback(torch::CppFunction::makeFallthrough());
  }

  torch::Library meta;
  torch::Library with_gradients;
  torch::Library foretelling;
  torch::Library others;
};

}  // namespace

void RegisterForetoldKernels() {
  // The object is never deleted, so the kernels stay registered, and further calls do not construct it again.
  static const auto& kernels = *new Kernels;
  static_cast<void>(kernels);
}

Foretelling::Foretelling(bool fills) {
  fills_tensors = fills;
  c10::impl::tls_set_dispatch_key_excluded(kForetelling, false);
  c10::impl::tls_set_dispatch_key_included(kForetelling, true);
}

Foretelling::~Foretelling() {
  c10::impl::tls_set_dispatch_key_included(kForetelling, false);
  c10::impl::tls_set_dispatch_key_excluded(kForetelling, true);
  fills_tensors = true;
}

}  // namespace lockstep
