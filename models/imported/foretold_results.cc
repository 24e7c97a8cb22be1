#include "models/imported/foretold_results.h"

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/core/alias_info.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/native/TypeProperties.h>
#include <torch/library.h>

#include <algorithm>
#include <initializer_list>
#include <string>
#include <utility>

#include "models/imported/call_arguments.h"

namespace lockstep::exported {
namespace {

using c10::IValue;
using Sizes = std::vector<int64_t>;
using Results = std::vector<IValue>;
using Call = CallArguments;

// A dispatch key of LibTorch that nothing else in this program uses: the program has no XLA device.
constexpr c10::DispatchKey kForetelling = c10::DispatchKey::AutocastXLA;

// ---- Tensors ------------------------------------------------------------------------------------

at::Tensor Like(const at::Tensor& x, at::ScalarType dtype) {
  return at::empty_like(x, x.options().dtype(dtype));
}

at::Tensor Of(const Sizes& sizes, const at::Tensor& like, at::ScalarType dtype) {
  return at::empty(sizes, like.options().dtype(dtype));
}
at::Tensor Of(const Sizes& sizes, const at::Tensor& like) {
  return Of(sizes, like, like.scalar_type());
}

at::ScalarType FloatOf(const at::Tensor& x) {
  return at::isIntegralType(x.scalar_type(), /*includeBool=*/true)
             ? c10::typeMetaToScalarType(at::get_default_dtype())
             : x.scalar_type();
}
at::ScalarType SumOf(const at::Tensor& x) {
  return at::isIntegralType(x.scalar_type(), /*includeBool=*/true) ? at::kLong : x.scalar_type();
}

// Returns the dtype of an element-wise operation's result. Numbers among the arguments count as in Python's x + 1.
at::ScalarType PromotedDtype(const Call& call) {
  at::native::ResultTypeState state = {};
  for (const IValue& value : call.values()) {
    if (value.isTensor() && value.toTensor().defined()) {
      state = at::native::update_result_type_state(value.toTensor(), state);
    } else if (value.isScalar() && !value.isBool()) {
      at::Tensor number = at::scalar_tensor(value.toScalar(), at::dtype(value.toScalar().type()));
      number.unsafeGetTensorImpl()->set_wrapped_number(true);
      state = at::native::update_result_type_state(number, state);
    }
  }
  return at::native::result_type(state);
}

Sizes BroadcastSizes(const std::vector<at::Tensor>& tensors) {
  Sizes sizes;
  for (const at::Tensor& tensor : tensors) sizes = at::infer_size(sizes, tensor.sizes());
  return sizes;
}

// Returns the sizes of x without the dimensions `dims`; all of them if there are none.
Sizes Reduced(const at::Tensor& x, std::optional<Sizes> dims, bool keeps) {
  std::vector<bool> gone(x.dim(), !dims || dims->empty());
  if (dims) {
    for (const int64_t dim : *dims) {
      const int64_t at = at::maybe_wrap_dim(dim, x.dim());
      if (x.dim() > 0) gone[at] = true;
    }
  }
  Sizes sizes;
  for (int64_t i = 0; i < x.dim(); ++i) {
    if (!gone[i]) sizes.push_back(x.size(i));
    if (gone[i] && keeps) sizes.push_back(1);
  }
  return sizes;
}

int64_t NumberAt(const Sizes& numbers, int64_t i) {
  return numbers.size() == 1 ? numbers[0] : numbers.at(i);
}

// ---- Results of operations ----------------------------------------------------------------------

Results LikeFirst(const Call& call) { return {Like(call.First(), call.First().scalar_type())}; }
Results LikeFirstFloat(const Call& call) { return {Like(call.First(), FloatOf(call.First()))}; }
Results LikeFirstBool(const Call& call) { return {Like(call.First(), at::kBool)}; }
Results LikeFirstTwice(const Call& call) {
  return {at::empty_like(call.First()), at::empty_like(call.First())};
}
Results Broadcast(const Call& call) {
  return {Of(BroadcastSizes(call.AllTensors()), call.AllTensors().at(0), PromotedDtype(call))};
}
Results BroadcastBool(const Call& call) {
  return {Of(BroadcastSizes(call.AllTensors()), call.First(), at::kBool)};
}
Results InPlace(const Call& call) {
  TORCH_CHECK(BroadcastSizes(call.AllTensors()) == call.First().sizes(),
              "its result does not have the sizes of its first argument");
  return {call.First()};
}
Results Nothing(const Call&) { return {}; }
Results Refused(const Call& call) {
  TORCH_CHECK(false, call.schema().name(), " depends on values of a tensor, which are not known");
}

Results Where(const Call& call) {
  const at::Tensor x = *call.Tensor("self"), y = *call.Tensor("other");
  const at::Tensor out = Of(BroadcastSizes({call.First(), x, y}), x, at::result_type(x, y));
  if (const auto given = call.Tensor("out")) return {given->resize_(out.sizes())};
  return {out};
}

Results IsIn(const Call& call) {
  const auto elements = call.Tensor("elements");
  return {Of(elements ? elements->sizes().vec() : Sizes(), call.AllTensors().at(0), at::kBool)};
}

Results Bucket(const Call& call) {
  const auto x = call.Tensor("self");
  const at::ScalarType dtype = call.Is("out_int32") ? at::kInt : at::kLong;
  const at::Tensor any = call.AllTensors().at(0);
  return {Of(x ? x->sizes().vec() : Sizes(), any, dtype)};
}

Results Whole(const Call& call) { return {Of({}, call.First())}; }
Results WholeSum(const Call& call) {
  return {Of({}, call.First(), call.Dtype("dtype").value_or(SumOf(call.First())))};
}
Results Sum(const Call& call) {
  const at::Tensor& x = call.First();
  return {Of(Reduced(x, call.Integers("dim"), call.Is("keepdim")), x,
             call.Dtype("dtype").value_or(SumOf(x)))};
}
Results Count(const Call& call) {
  return {Of(Reduced(call.First(), call.Integers("dim"), false), call.First(), at::kLong)};
}
Results Deviation(const Call& call) {
  return {Of(Reduced(call.First(), call.Integers("dim"), call.Is("keepdim")), call.First())};
}
Results DeviationAndMean(const Call& call) { return {Deviation(call)[0], Deviation(call)[0]}; }
Results ValueAndIndex(const Call& call) {
  const Sizes sizes = Reduced(call.First(), Sizes{*call.Integer("dim")}, call.Is("keepdim"));
  return {Of(sizes, call.First()), Of(sizes, call.First(), at::kLong)};
}

Results Covariance(const Call& call) {
  const at::Tensor& x = call.First();
  TORCH_CHECK(x.dim() <= 2, "self has ", x.dim(), " dimensions");
  const bool is_matrix = x.dim() == 2 && x.size(0) != 1;
  return {Of(is_matrix ? Sizes{x.size(0), x.size(0)} : Sizes(), x, FloatOf(x))};
}

Results Take(const Call& call) { return {Of(call.Tensor("index")->sizes().vec(), call.First())}; }
Results IndexSelect(const Call& call) {
  const at::Tensor& x = call.First();
  Sizes sizes = x.sizes().vec();
  const int64_t dim = at::maybe_wrap_dim(*call.Integer("dim"), x.dim());
  if (!sizes.empty()) sizes[dim] = call.Tensor("index")->numel();
  return {Of(sizes, x)};
}

Results BatchedSum(const Call& call) {
  return {Of({call.Tensor("batch1")->size(1), call.Tensor("batch2")->size(2)}, call.First())};
}

Results BatchedSumInPlace(const Call& call) {
  const at::Tensor sum = BatchedSum(call)[0].toTensor();
  TORCH_CHECK(sum.sizes() == call.First().sizes(), "self has the sizes ", call.First().sizes(),
              ", and the sum has ", sum.sizes());
  return {call.First()};
}

Results Convolution(const Call& call) {
  const at::Tensor x = *call.Tensor("input"), weight = *call.Tensor("weight");
  const Sizes stride = *call.Integers("stride"), padding = *call.Integers("padding");
  const Sizes dilation = *call.Integers("dilation"), more = *call.Integers("output_padding");
  const bool transposed = call.Is("transposed");
  const int64_t spatial = weight.dim() - 2, first = x.dim() - spatial;
  Sizes sizes = x.sizes().vec();
  sizes[first - 1] = transposed ? weight.size(1) * *call.Integer("groups") : weight.size(0);
  for (int64_t i = 0; i < spatial; ++i) {
    const int64_t kernel = NumberAt(dilation, i) * (weight.size(i + 2) - 1) + 1;
    const int64_t size = x.size(first + i), pad = 2 * NumberAt(padding, i);
    sizes[first + i] = transposed
                           ? (size - 1) * NumberAt(stride, i) - pad + kernel + NumberAt(more, i)
                           : (size + pad - kernel) / NumberAt(stride, i) + 1;
  }
  return {at::empty(sizes, x.options(), x.suggest_memory_format())};
}

Results MaxPool3d(const Call& call) {
  const at::Tensor& x = call.First();
  const Sizes kernel = *call.Integers("kernel_size"), padding = *call.Integers("padding");
  const Sizes dilation = *call.Integers("dilation");
  Sizes stride = call.Integers("stride").value_or(kernel);
  if (stride.empty()) stride = kernel;
  Sizes sizes = x.sizes().vec();
  constexpr int64_t kSpatial = 3;
  for (int64_t i = 0; i < kSpatial; ++i) {
    int64_t& size = sizes[x.dim() - kSpatial + i];
    const int64_t step = NumberAt(stride, i), pad = NumberAt(padding, i), whole = size;
    const int64_t reach = NumberAt(dilation, i) * (NumberAt(kernel, i) - 1) + 1;
    size = (size + 2 * pad - reach + (call.Is("ceil_mode") ? step - 1 : 0)) / step + 1;
    if (call.Is("ceil_mode") && (size - 1) * step >= whole + pad) --size;
  }
  return {Of(sizes, x), Of(sizes, x, at::kLong)};
}

Results LastSizes(const Call& call) {  // adaptive_avg_pool, max_unpool
  const at::Tensor& x = call.First();
  const Sizes last = *call.Integers("output_size");
  Sizes sizes = x.sizes().vec();
  std::ranges::copy(last, sizes.end() - std::ssize(last));
  return {Of(sizes, x)};
}

Results ReflectionPad(const Call& call) {
  const at::Tensor& x = call.First();
  const Sizes padding = *call.Integers("padding");
  Sizes sizes = x.sizes().vec();
  for (size_t i = 0; i < padding.size() / 2; ++i) {
    sizes[sizes.size() - 1 - i] += padding[2 * i] + padding[2 * i + 1];
  }
  return {Of(sizes, x)};
}

Results Im2Col(const Call& call) {
  const at::Tensor& x = call.First();
  const Sizes kernel = *call.Integers("kernel_size"), dilation = *call.Integers("dilation");
  const Sizes padding = *call.Integers("padding"), stride = *call.Integers("stride");
  int64_t columns = 1, area = 1;
  for (int64_t i = 0; i < 2; ++i) {
    const int64_t reach = NumberAt(dilation, i) * (NumberAt(kernel, i) - 1) + 1;
    columns *= (x.size(i - 2) + 2 * NumberAt(padding, i) - reach) / NumberAt(stride, i) + 1;
    area *= NumberAt(kernel, i);
  }
  Sizes sizes{x.size(-3) * area, columns};
  if (x.dim() == 4) sizes.insert(sizes.begin(), x.size(0));
  return {Of(sizes, x)};
}
Results Col2Im(const Call& call) {
  const at::Tensor& x = call.First();
  const Sizes kernel = *call.Integers("kernel_size"), size = *call.Integers("output_size");
  Sizes sizes{x.size(-2) / (NumberAt(kernel, 0) * NumberAt(kernel, 1)), NumberAt(size, 0),
              NumberAt(size, 1)};
  if (x.dim() == 3) sizes.insert(sizes.begin(), x.size(0));
  return {Of(sizes, x)};
}

Results GridSampler(const Call& call) {
  const at::Tensor x = call.First(), grid = *call.Tensor("grid");
  Sizes sizes = grid.sizes().vec();
  sizes.pop_back();
  sizes.insert(sizes.begin() + 1, x.size(1));
  return {Of(sizes, x)};
}

Results BatchNorm(const Call& call) {
  const at::Tensor& x = call.First();
  const int64_t channels = call.Is("training") ? x.size(1) : 0;
  const auto weight = call.Tensor("weight");
  const at::Tensor& like = weight ? *weight : x;
  return {at::empty_like(x), Of({channels}, like), Of({channels}, like)};
}
Results GroupNorm(const Call& call) {
  const at::Tensor& x = call.First();
  const auto weight = call.Tensor("weight"), bias = call.Tensor("bias");
  const at::Tensor& like = weight ? *weight : bias ? *bias : x;
  const Sizes sizes{*call.Integer("N"), *call.Integer("group")};
  return {at::empty_like(x), Of(sizes, like), Of(sizes, like)};
}
Results Dropout(const Call& call) {
  const bool is_empty = call.First().numel() == 0;
  return {at::empty_like(call.First()),
          Like(call.First(), is_empty ? call.First().scalar_type() : at::kBool)};
}
Results WeightNorm(const Call& call) {
  return {at::empty_like(*call.Tensor("v")), at::empty_like(*call.Tensor("g"))};
}

Results ReducedLoss(const Call& call, const Sizes& sizes) {
  return {Of(call.Integer("reduction") == at::Reduction::None ? sizes : Sizes(), call.First())};
}
Results BroadcastLoss(const Call& call) {
  return {Of(call.Integer("reduction") == at::Reduction::None
                 ? BroadcastSizes({call.First(), *call.Tensor("target")})
                 : Sizes(),
             call.First(), at::result_type(call.First(), *call.Tensor("target")))};
}
Results MultiMarginLoss(const Call& call) {
  return ReducedLoss(call, call.Tensor("target")->sizes().vec());
}
Results MultilabelMarginLoss(const Call& call) {
  const at::Tensor& x = call.First();
  const Sizes sizes = x.dim() == 2 ? Sizes{x.size(0)} : Sizes();
  Results results = ReducedLoss(call, sizes);
  results.emplace_back(Like(*call.Tensor("target"), x.scalar_type()));
  return results;
}
Results PixelLoss(const Call& call) {
  Results results = ReducedLoss(call, call.Tensor("target")->sizes().vec());
  results.emplace_back(Of({}, call.First()));
  return results;
}

// The sizes of the other three results depend on the kernel that LibTorch chooses, and no module uses them.
Results EmbeddingBag(const Call& call) {
  const at::Tensor& weight = call.First();
  const int64_t bags = call.Tensor("offsets")->size(0) - (call.Is("include_last_offset") ? 1 : 0);
  return {Of({bags, weight.size(1)}, weight), at::Tensor(), at::Tensor(), at::Tensor()};
}

Results Distances(const Call& call) {
  const at::Tensor a = *call.Tensor("x1"), b = *call.Tensor("x2");
  Sizes sizes = at::infer_size(a.sizes().slice(0, a.dim() - 2), b.sizes().slice(0, b.dim() - 2));
  sizes.insert(sizes.end(), {a.size(-2), b.size(-2)});
  return {Of(sizes, a, at::result_type(a, b))};
}

// ---- Operations without tensors -----------------------------------------------------------------

at::TensorOptions OptionsOf(const Call& call, at::ScalarType dtype) {
  return at::TensorOptions(call.Dtype("dtype").value_or(dtype)).device(at::kMeta);
}
Results Permutation(const Call& call) {
  return {at::empty({*call.Integer("n")}, OptionsOf(call, at::kLong))};
}
Results Draws(const Call& call) {
  Sizes sizes = call.First().sizes().vec();
  sizes.back() = *call.Integer("num_samples");
  return {Of(sizes, call.First(), at::kLong)};
}
template <bool kLower>
Results TriangleIndices(const Call& call) {
  const int64_t rows = *call.Integer("row"), columns = *call.Integer("col");
  const int64_t offset = *call.Integer("offset");
  const int64_t below = at::native::get_tril_size(rows, columns, kLower ? offset : offset - 1);
  return {at::empty({2, kLower ? below : rows * columns - below}, OptionsOf(call, at::kLong))};
}

template <Results (*kFunction)(const Call&)>
void Boxed(const c10::OperatorHandle& operation, torch::jit::Stack* stack) {
  const std::vector<IValue> arguments =
      torch::jit::pop(*stack, operation.schema().arguments().size());
  for (IValue& result : kFunction(Call(operation.schema(), arguments)))
    stack->push_back(std::move(result));
}

struct Kernels {
  Kernels()
      : aten(torch::Library::IMPL, "aten", kForetelling, __FILE__, __LINE__),
        others(torch::Library::IMPL, "_", kForetelling, __FILE__, __LINE__) {
    Add<&LikeFirst>({"relu", "hardswish", "hardtanh", "nan_to_num", "flip", "roll", "poisson",
                     "abs", "channel_shuffle", "native_channel_shuffle", "cholesky",
                     "linalg_matrix_exp", "_logcumsumexp", "rrelu_with_noise", "_prelu_kernel"});
    Add<&LikeFirstFloat>({"logit"});
    Add<&LikeFirstBool>({"isnan", "isfinite", "isinf", "logical_not"});
    Add<&LikeFirstTwice>({"log_sigmoid_forward"});
    Add<&InPlace>({"relu_",
                   "hardswish_",
                   "hardtanh_",
                   "nan_to_num_",
                   "abs_",
                   "logical_not_",
                   "logical_and_",
                   "logical_or_",
                   "logical_xor_",
                   "floor_divide_.Tensor",
                   "floor_divide_.Scalar",
                   "ldexp_",
                   "masked_fill_.Scalar",
                   "masked_fill_.Tensor",
                   "bernoulli_.float",
                   "bernoulli_.Tensor",
                   "rrelu_with_noise_",
                   "normal_",
                   "uniform_",
                   "random_",
                   "random_.from",
                   "random_.to",
                   "exponential_",
                   "geometric_",
                   "index_put_",
                   "_index_put_impl_"});
    Add<&BroadcastBool>({"logical_and", "logical_or", "logical_xor"});
    Add<&Broadcast>({"floor_divide", "floor_divide.Scalar", "rsub.Tensor",
                     "remainder.Scalar_Tensor", "__lshift__.Scalar", "__lshift__.Tensor",
                     "__rshift__.Scalar", "__rshift__.Tensor"});
    Add<&Where>({"where.self", "where.self_out"});
    Add<&IsIn>({"isin.Scalar_Tensor", "isin.Tensor_Scalar", "isin.Tensor_Tensor"});
    Add<&Bucket>(
        {"bucketize.Tensor", "bucketize.Scalar", "searchsorted.Tensor", "searchsorted.Scalar"});
    Add<&Whole>({"max", "min", "median", "nanmedian", "dot", "vdot"});
    Add<&WholeSum>({"prod", "trace"});
    Add<&Sum>({"nansum"});
    Add<&Count>({"count_nonzero.dim_IntList"});
    Add<&Deviation>({"std.correction", "var.correction"});
    Add<&DeviationAndMean>({"std_mean.correction", "var_mean.correction"});
    Add<&ValueAndIndex>({"kthvalue"});
    Add<&Nothing>({"_cummax_helper", "_cummin_helper"});
    Add<&Covariance>({"cov", "corrcoef"});
    Add<&Take>({"take"});
    Add<&IndexSelect>({"index_select"});
    Add<&BatchedSum>({"addbmm"});
    Add<&BatchedSumInPlace>({"addbmm_"});
    Add<&Convolution>({"convolution"});
    Add<&MaxPool3d>({"max_pool3d_with_indices"});
    Add<&LastSizes>({"_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "max_unpool2d"});
    Add<&ReflectionPad>({"reflection_pad2d"});
    Add<&Im2Col>({"im2col"});
    Add<&Col2Im>({"col2im"});
    Add<&GridSampler>({"grid_sampler_2d", "grid_sampler_3d"});
    Add<&BatchNorm>({"native_batch_norm"});
    Add<&GroupNorm>({"native_group_norm"});
    Add<&Dropout>({"native_dropout"});
    Add<&WeightNorm>({"_weight_norm_interface"});
    Add<&BroadcastLoss>({"huber_loss", "binary_cross_entropy"});
    Add<&MultiMarginLoss>({"multi_margin_loss"});
    Add<&MultilabelMarginLoss>({"multilabel_margin_loss_forward"});
    Add<&PixelLoss>({"nll_loss2d_forward"});
    Add<&EmbeddingBag>({"_embedding_bag_forward_only", "_embedding_bag"});
    Add<&Distances>({"_cdist_forward"});
    Add<&Permutation>({"randperm", "randperm.generator"});
    Add<&Draws>({"multinomial"});
    Add<&TriangleIndices<true>>({"tril_indices"});
    Add<&TriangleIndices<false>>({"triu_indices"});
    Add<&Refused>({"_local_scalar_dense", "equal", "nonzero"});
    others.fallback(torch::CppFunction::makeFallthrough());
  }

  template <Results (*kFunction)(const Call&)>
  void Add(std::initializer_list<const char*> names) {
    for (const char* name : names)
      aten.impl(name, torch::CppFunction::makeFromBoxedFunction<&Boxed<kFunction>>());
  }

  torch::Library aten;
  torch::Library others;
};

// While a Foretelling exists, this thread's operations use the kernels above.
class Foretelling {
 public:
  Foretelling() {
    // The object is never deleted, so the kernels stay registered.
    static const auto& kernels = *new Kernels;
    static_cast<void>(kernels);
    c10::impl::tls_set_dispatch_key_excluded(kForetelling, false);
    c10::impl::tls_set_dispatch_key_included(kForetelling, true);
  }
  ~Foretelling() {
    c10::impl::tls_set_dispatch_key_included(kForetelling, false);
    c10::impl::tls_set_dispatch_key_excluded(kForetelling, true);
  }
  Foretelling(const Foretelling&) = delete;
  Foretelling& operator=(const Foretelling&) = delete;
};

bool IsRounded(at::ScalarType dtype) { return dtype == at::kHalf || dtype == at::kBFloat16; }

// Replaces dtypes of 16 bits among the arguments of a call by float32.
void WidenDtypes(const c10::FunctionSchema& schema, std::vector<IValue>& arguments) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    c10::TypePtr type = schema.arguments()[i].real_type();
    if (const auto optional = type->cast<c10::OptionalType>()) type = optional->getElementType();
    if (type->kind() != c10::TypeKind::ScalarTypeType || !arguments[i].isInt()) continue;
    const auto dtype = static_cast<at::ScalarType>(arguments[i].toInt());
    TORCH_CHECK(schema.name() != "aten::view" ||
                    (!IsRounded(dtype) && arguments[0].toTensor().scalar_type() != at::kFloat),
                "the sizes of its result depend on the precision of training: take FP32");
    if (IsRounded(dtype)) arguments[i] = static_cast<int64_t>(at::kFloat);
  }
}

}  // namespace

std::vector<IValue> Foretold(const c10::OperatorHandle& operation, std::vector<IValue> arguments,
                             bool rounds) {
  if (rounds) WidenDtypes(operation.schema(), arguments);
  const at::NoGradGuard no_grad;
  const Foretelling foretelling;
  operation.callBoxed(arguments);
  return arguments;
}

at::Tensor OnMeta(const at::Tensor& tensor, bool widens) {
  if (!tensor.defined()) return tensor;
  const at::ScalarType dtype =
      widens && IsRounded(tensor.scalar_type()) ? at::kFloat : tensor.scalar_type();
  at::Tensor meta = at::empty_strided(tensor.sizes(), tensor.strides(),
                                      tensor.options().dtype(dtype).device(at::kMeta));
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number())
    meta.unsafeGetTensorImpl()->set_wrapped_number(true);
  return meta;
}

}  // namespace lockstep::exported
