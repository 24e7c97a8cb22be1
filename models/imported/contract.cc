#include "models/imported/contract.h"

#include <ATen/ATen.h>
#include <ATen/WrapDimUtils.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/tensor/autocast.h"
#include "models/imported/call_arguments.h"

namespace lockstep::exported {
namespace {

using c10::IValue;
using c10::TypeKind;
using Call = CallArguments;
using Rule = std::function<void(const Call&)>;
using Name = std::string;
using Names = std::vector<Name>;
using Sizes = std::vector<int64_t>;

// ---- What every operation asks for ----------------------------------------------------------------

constexpr int64_t kMostInteger = std::numeric_limits<int32_t>::max();

// Integers that are compared, clamped or stored, and may therefore have any value. LibTorch computes with all others.
bool MayBeAnyInteger(const Name& name) {
  static const Names kNames{"start", "end", "low", "high", "from", "to", "ignore_index"};
  return std::ranges::find(kNames, name) != kNames.end();
}

// Sizes of tensors may have as many bits as an address. LibTorch computes with other integers, also with several at once.
int64_t MostOf(const Name& name) {
  constexpr int64_t kMostSize = int64_t{1} << 47;
  static const Names kSizes{"size", "shape", "sizes", "split_size"};
  return std::ranges::find(kSizes, name) != kSizes.end() ? kMostSize : kMostInteger;
}

bool HasType(const IValue& value, const c10::TypePtr& type) {
  switch (type->kind()) {
    case TypeKind::OptionalType:
      return value.isNone() ||
             HasType(value, type->expectRef<c10::OptionalType>().getElementType());
    case TypeKind::TensorType:
      return value.isTensor() && value.toTensor().defined();
    case TypeKind::ListType: {
      const c10::TypePtr& element = type->expectRef<c10::ListType>().getElementType();
      return value.isList() && std::ranges::all_of(value.toListRef(), [&](const IValue& one) {
               return HasType(one, element);
             });
    }
    case TypeKind::IntType:
    case TypeKind::SymIntType:
    case TypeKind::ScalarTypeType:
    case TypeKind::LayoutType:
    case TypeKind::MemoryFormatType:
      return value.isInt();
    case TypeKind::FloatType:
      return value.isDouble();
    case TypeKind::BoolType:
      return value.isBool();
    case TypeKind::NumberType:
      return value.isScalar();
    case TypeKind::StringType:
      return value.isString();
    case TypeKind::DeviceObjType:
      return value.isDevice();
    default:  // generators, names of dimensions
      return value.isNone();
  }
}

void CheckArgument(const c10::Argument& argument, const IValue& value) {
  const Name& name = argument.name();
  TORCH_CHECK(HasType(value, argument.real_type()), name, " is no ",
              argument.real_type()->repr_str());
  const auto check = [&](const IValue& one) {
    if (one.isInt() && !MayBeAnyInteger(name)) {
      TORCH_CHECK(one.toInt() >= -MostOf(name) && one.toInt() <= MostOf(name), name, " is ",
                  one.toInt(), ", and may be at most ", MostOf(name));
    }
    if (one.isTensor()) {
      TORCH_CHECK(one.toTensor().dim() <= kMostDimensions, name, " has ", one.toTensor().dim(),
                  " dimensions, and at most ", kMostDimensions, " are supported");
    }
  };
  check(value);
  if (value.isList()) std::ranges::for_each(value.toListRef(), check);
}

// ---- Rules ----------------------------------------------------------------------------------------

// Applies `check` to each argument of `names` that the operation has and that is not None.
template <typename Check>
Rule ForTensors(const Names& names, const Check& check) {
  return [names, check](const Call& call) {
    for (const Name& name : names) {
      if (const auto tensor = call.Tensor(name)) check(call, name, *tensor);
    }
  };
}
template <typename Check>
Rule ForIntegers(const Names& names, const Check& check) {
  return [names, check](const Call& call) {
    for (const Name& name : names) {
      for (const int64_t number : call.Integers(name).value_or(Sizes())) check(name, number);
    }
  };
}

Rule Positive(const Names& names) {
  return ForIntegers(names, [](const Name& name, int64_t number) {
    TORCH_CHECK(number > 0, name, " is ", number, ", and must be positive");
  });
}

Rule NotNegative(const Names& names) {
  return ForIntegers(names, [](const Name& name, int64_t number) {
    TORCH_CHECK(number >= 0, name, " is ", number, ", and must not be negative");
  });
}

Rule AtMost(int64_t most, const Names& names) {
  return ForIntegers(names, [most](const Name& name, int64_t number) {
    TORCH_CHECK(number <= most, name, " is ", number, ", and may be at most ", most);
  });
}

Rule Between(int64_t low, int64_t high, const Names& names) {
  return ForIntegers(names, [low, high](const Name& name, int64_t number) {
    TORCH_CHECK(number >= low && number <= high, name, " is ", number, ", and must be ", low,
                " to ", high);
  });
}

Rule Dimensions(int64_t low, int64_t high, const Names& names) {
  return ForTensors(names, [low, high](const Call&, const Name& name, const at::Tensor& tensor) {
    TORCH_CHECK(tensor.dim() >= low && tensor.dim() <= high, name, " has ", tensor.dim(),
                " dimensions, and must have ", low, " to ", high);
  });
}

Rule Floats(const Names& names) {
  return ForTensors(names, [](const Call&, const Name& name, const at::Tensor& tensor) {
    TORCH_CHECK(tensor.is_floating_point(), name, " is ", tensor.scalar_type(),
                ", and must be floating-point");
  });
}

Rule Integers(const Names& names) {
  return ForTensors(names, [](const Call&, const Name& name, const at::Tensor& tensor) {
    TORCH_CHECK(tensor.scalar_type() == at::kLong || tensor.scalar_type() == at::kInt, name, " is ",
                tensor.scalar_type(), ", and must be int64 or int32");
  });
}

Rule Contiguous(const Names& names) {
  return ForTensors(names, [](const Call&, const Name& name, const at::Tensor& tensor) {
    TORCH_CHECK(tensor.is_contiguous(), name, " is not contiguous");
  });
}

Rule NotEmpty(const Names& names) {
  return ForTensors(names, [](const Call&, const Name& name, const at::Tensor& tensor) {
    TORCH_CHECK(tensor.numel() > 0, name, " has no elements");
  });
}

// Each of `names` has the sizes of `of`, or the dtype.
Rule SameSizes(const Name& of, const Names& names) {
  return ForTensors(names, [of](const Call& call, const Name& name, const at::Tensor& tensor) {
    const auto like = call.Tensor(of);
    TORCH_CHECK(!like || like->sizes() == tensor.sizes(), name, " has the sizes ", tensor.sizes(),
                ", and ", of, " has ", like ? like->sizes() : at::IntArrayRef());
  });
}
Rule SameDtype(const Name& of, const Names& names) {
  return ForTensors(names, [of](const Call& call, const Name& name, const at::Tensor& tensor) {
    const auto like = call.Tensor(of);
    TORCH_CHECK(!like || like->scalar_type() == tensor.scalar_type(), name, " is ",
                tensor.scalar_type(), ", and ", of, " is ", like->scalar_type());
  });
}

// Each of `names` is a vector with an element for each index of dimension `dim` of `of`.
Rule Vectors(const Name& of, int64_t dim, const Names& names) {
  return ForTensors(names, [of, dim](const Call& call, const Name& name, const at::Tensor& tensor) {
    const at::Tensor like = call.Tensor(of).value();
    const int64_t count = like.size(dim);
    TORCH_CHECK(tensor.dim() == 1 && tensor.size(0) == count, name, " has the sizes ",
                tensor.sizes(), ", and must have [", count, "]");
  });
}

// The values of an index tensor lie in [0, size). They are compared when the operation is called on a CPU. On a GPU, its
// kernels compare each index themselves.
void CheckIndices(const Name& name, const at::Tensor& indices, int64_t size) {
  if (!indices.device().is_cpu() || indices.numel() == 0) return;
  const auto [least, most] = at::aminmax(indices.detach().to(at::kLong));
  const int64_t low = least.item<int64_t>(), high = most.item<int64_t>();
  TORCH_CHECK(low >= 0 && high < size, name, " has the values ", low, " to ", high,
              ", and indexes ", size, " elements");
}

// ---- Convolutions and windows ---------------------------------------------------------------------

// Returns the number of spatial dimensions that the name of an operation ends with, as in conv2d.
int64_t SpatialOf(const Call& call) {
  const Name& name = call.schema().name();
  for (size_t i = 0; i + 1 < name.size(); ++i) {
    if (name[i] >= '1' && name[i] <= '3' && name[i + 1] == 'd') return name[i] - '0';
  }
  return call.First().dim() - 2;
}

int64_t NumberAt(const Sizes& numbers, int64_t i) {
  return numbers.size() == 1 ? numbers[0] : numbers.at(i);
}

void CheckWindowLists(const Call& call) {
  const auto spatial = static_cast<size_t>(SpatialOf(call));
  for (const Name name : {"kernel_size", "padding", "dilation", "output_padding", "stride"}) {
    const auto list = call.Integers(name);
    const bool may_be_empty = name == "stride" && call.Integers("kernel_size").has_value();
    TORCH_CHECK(
        !list || list->size() == 1 || list->size() == spatial || (may_be_empty && list->empty()),
        name, " has ", list ? list->size() : 0, " numbers, and must have ", spatial);
  }
}

void CheckConvolution(const Call& call) {
  const at::Tensor x = *call.Tensor("input"), weight = *call.Tensor("weight");
  const int64_t spatial =
      call.schema().name() == "aten::convolution" ? weight.dim() - 2 : SpatialOf(call);
  const bool transposed =
      call.Is("transposed") || call.schema().name().find("transpose") != std::string::npos;
  TORCH_CHECK(spatial >= 1 && spatial <= 3 && weight.dim() == spatial + 2, "weight has ",
              weight.dim(), " dimensions");
  TORCH_CHECK(x.dim() == spatial + 2 ||
                  (x.dim() == spatial + 1 && call.schema().name() != "aten::convolution"),
              "input has ", x.dim(), " dimensions");
  const auto bias = call.Tensor("bias");
  for (const at::Tensor& tensor : {x, weight, bias.value_or(x)}) {
    TORCH_CHECK(tensor.is_floating_point(), "the tensors of a convolution are floating-point");
  }
  const int64_t groups = *call.Integer("groups");
  const int64_t inputs = transposed ? weight.size(0) : weight.size(1) * groups;
  const int64_t outputs = transposed ? weight.size(1) * groups : weight.size(0);
  TORCH_CHECK(weight.size(0) > 0 && weight.size(0) % groups == 0, "weight has ", weight.size(0),
              " rows for ", groups, " groups");
  const int64_t first = x.dim() - spatial;
  TORCH_CHECK(x.size(first - 1) == inputs && inputs > 0, "input has ", x.size(first - 1),
              " channels, and weight is for ", inputs);
  TORCH_CHECK(outputs > 0, "weight has no output channels");
  TORCH_CHECK(!bias || (bias->dim() == 1 && bias->size(0) == outputs), "bias does not have [",
              outputs, "]");
  const Sizes stride = *call.Integers("stride"), dilation = *call.Integers("dilation");
  const Sizes padding = call.Integers("padding").value_or(Sizes{0});
  const bool pads_to_same = call.Text("padding") == "same";
  const Sizes more = call.Integers("output_padding").value_or(Sizes{0});
  for (const Sizes& list : {stride, dilation, padding, more}) {
    TORCH_CHECK(list.size() == 1 || std::ssize(list) == spatial, "a list has ", list.size(),
                " numbers for ", spatial, " dimensions");
  }
  for (int64_t i = 0; i < spatial; ++i) {
    TORCH_CHECK(weight.size(i + 2) > 0, "weight has no elements");
    const int64_t reach = NumberAt(dilation, i) * (weight.size(i + 2) - 1) + 1;
    const int64_t size = x.size(first + i), pad = NumberAt(padding, i);
    TORCH_CHECK(size > 0 && (transposed || pads_to_same || size + 2 * pad >= reach), "input has ",
                size, " + ", 2 * pad, " pixels in dimension ", i, ", and the kernel spans ", reach);
    // oneDNN looks for the next window even if it begins beyond the input.
    constexpr int64_t kNear = 1024;
    TORCH_CHECK(transposed || NumberAt(stride, i) <= std::max(kNear, size + 2 * pad), "stride is ",
                NumberAt(stride, i), ", and input has ", size, " + ", 2 * pad, " pixels");
    if (!transposed) continue;
    // A greater padding leaves pixels of the input without a window. oneDNN's kernels of 16 bits do not expect it.
    TORCH_CHECK(pad < reach, "padding is ", pad, ", and must be smaller than the ", reach,
                " pixels that the kernel spans");
    TORCH_CHECK(NumberAt(more, i) < std::max(NumberAt(stride, i), NumberAt(dilation, i)),
                "output_padding is ", NumberAt(more, i),
                ", and must be smaller than stride or dilation");
    TORCH_CHECK((size - 1) * NumberAt(stride, i) - 2 * pad + reach + NumberAt(more, i) > 0,
                "the output has no pixels");
  }
}

void CheckPool(const Call& call) {
  const at::Tensor& x = call.First();
  const int64_t spatial = SpatialOf(call);
  TORCH_CHECK(x.dim() == spatial + 1 || x.dim() == spatial + 2, "self has ", x.dim(),
              " dimensions");
  CheckWindowLists(call);
  for (int64_t i = x.dim() - spatial - 1; i < x.dim(); ++i)
    TORCH_CHECK(x.size(i) > 0, "self has no elements");
  const Sizes kernel = call.Integers("kernel_size").value_or(Sizes{1});
  const Sizes padding = call.Integers("padding").value_or(Sizes{0});
  const Sizes dilation = call.Integers("dilation").value_or(Sizes{1});
  Sizes stride = call.Integers("stride").value_or(kernel);
  if (stride.empty()) stride = kernel;
  for (int64_t i = 0; i < spatial; ++i) {
    const int64_t pad = NumberAt(padding, i), size = x.size(x.dim() - spatial + i);
    // With ceil_mode the last window may reach beyond the padding, by less than a stride.
    const int64_t beyond = call.Is("ceil_mode") ? NumberAt(stride, i) - 1 : 0;
    TORCH_CHECK(2 * pad <= NumberAt(kernel, i), "padding is ", pad,
                ", and must be at most half of kernel_size");
    TORCH_CHECK(size + 2 * pad + beyond >= NumberAt(dilation, i) * (NumberAt(kernel, i) - 1) + 1,
                "kernel_size is larger than the padded input");
    // Otherwise a window may lie on padding only, and has no largest element.
    TORCH_CHECK(pad == 0 || NumberAt(dilation, i) <= size, "dilation is ", NumberAt(dilation, i),
                ", and at most the ", size, " pixels of the input");
  }
  TORCH_CHECK(!call.Integer("divisor_override") || *call.Integer("divisor_override") != 0,
              "divisor_override is 0");
}

void CheckAdaptivePool(const Call& call) {
  const at::Tensor& x = call.First();
  const int64_t spatial = SpatialOf(call);
  TORCH_CHECK(x.dim() == spatial + 1 || x.dim() == spatial + 2, "self has ", x.dim(),
              " dimensions");
  TORCH_CHECK(std::ssize(*call.Integers("output_size")) == spatial, "output_size must have ",
              spatial, " numbers");
  for (int64_t i = 1; i <= spatial + 1; ++i) TORCH_CHECK(x.size(-i) > 0, "self has no elements");
}

void CheckUnpool(const Call& call) {
  const at::Tensor& x = call.First();
  const Sizes size = *call.Integers("output_size");
  TORCH_CHECK(size.size() == 2 && (x.dim() == 3 || x.dim() == 4), "self has ", x.dim(),
              " dimensions");
}
void CheckUnpoolIndices(const Call& call) {
  const Sizes size = *call.Integers("output_size");
  CheckIndices("indices", *call.Tensor("indices"), size[0] * size[1]);
}

void CheckPad(const Call& call) {
  const at::Tensor& x = call.First();
  const Sizes padding = *call.Integers("padding");
  const int64_t spatial = SpatialOf(call);
  TORCH_CHECK(std::ssize(padding) == 2 * spatial, "padding must have ", 2 * spatial, " numbers");
  TORCH_CHECK(x.dim() == spatial + 1 || x.dim() == spatial + 2, "self has ", x.dim(),
              " dimensions");
  const bool reflects = call.schema().name().find("reflection") != std::string::npos;
  for (int64_t i = 0; i < spatial; ++i) {
    const int64_t size = x.size(-1 - i), before = padding[2 * i], after = padding[2 * i + 1];
    TORCH_CHECK(size > 0 && x.size(-1 - spatial) > 0, "self has no elements");
    TORCH_CHECK(!reflects || (before < size && after < size), "padding is larger than self");
    TORCH_CHECK(size + before + after > 0 && before > -size && after > -size,
                "the result would have no elements");
  }
}

void CheckColumns(const Call& call) {
  for (const Name name : {"kernel_size", "dilation", "padding", "stride", "output_size"}) {
    const auto list = call.Integers(name);
    TORCH_CHECK(!list || list->size() == 2, name, " must have 2 numbers");
  }
  const at::Tensor& x = call.First();
  const auto size = call.Integers("output_size");
  TORCH_CHECK(x.dim() == (size ? 2 : 3) || x.dim() == (size ? 3 : 4), "self has ", x.dim(),
              " dimensions");
  const int64_t leading = x.dim() == (size ? 2 : 3) ? 0 : 1;
  for (int64_t i = leading; i < x.dim(); ++i) TORCH_CHECK(x.size(i) > 0, "self has no elements");
  int64_t blocks = 1, area = 1;
  for (int64_t i = 0; i < 2; ++i) {
    const int64_t kernel = call.Integers("kernel_size")->at(i);
    const int64_t reach = call.Integers("dilation")->at(i) * (kernel - 1) + 1;
    const int64_t whole =
        (size ? size->at(i) : x.size(i - 2)) + 2 * call.Integers("padding")->at(i);
    TORCH_CHECK(whole >= reach, "kernel_size is larger than the padded input");
    blocks *= (whole - reach) / call.Integers("stride")->at(i) + 1;
    area *= kernel;
  }
  if (!size) return;
  TORCH_CHECK(x.size(-2) % area == 0 && x.size(-1) == blocks, "self has the sizes ", x.sizes(),
              ", and must have ", blocks, " blocks of a multiple of ", area);
}

// ---- Norms ----------------------------------------------------------------------------------------

void CheckBatchNorm(const Call& call) {
  const at::Tensor& x = call.First();
  const bool mean = call.Tensor("running_mean").has_value();
  TORCH_CHECK(mean == call.Tensor("running_var").has_value(),
              "one of running_mean and running_var is None");
  TORCH_CHECK(mean || call.Is("training") || call.Is("use_input_stats"),
              "running_mean is None in evaluation");
  TORCH_CHECK(x.size(1) > 0, "input has no channels");
}

void CheckLayerNorm(const Call& call) {
  const at::Tensor& x = call.First();
  const Sizes shape = *call.Integers("normalized_shape");
  const auto count = static_cast<int64_t>(shape.size());
  TORCH_CHECK(
      count > 0 && x.dim() >= count && x.sizes().slice(x.dim() - count) == at::IntArrayRef(shape),
      "input has the sizes ", x.sizes(), ", and must end with normalized_shape ", shape);
  for (const Name name : {"weight", "bias"}) {
    const auto tensor = call.Tensor(name);
    TORCH_CHECK(!tensor || tensor->sizes() == at::IntArrayRef(shape), name,
                " does not have normalized_shape");
  }
}

void CheckGroupNorm(const Call& call) {
  const at::Tensor& x = call.First();
  const int64_t groups = call.Integer("num_groups").value_or(call.Integer("group").value_or(1));
  TORCH_CHECK(x.size(1) > 0 && x.size(1) % groups == 0, "input has ", x.size(1), " channels for ",
              groups, " groups");
  if (!call.Integer("HxW")) return;
  const int64_t samples = *call.Integer("N"), channels = *call.Integer("C");
  const int64_t area = *call.Integer("HxW");
  TORCH_CHECK(samples == x.size(0) && channels == x.size(1) &&
                  (x.numel() == 0 ? area >= 0 : x.numel() / samples / channels == area),
              "input has the sizes ", x.sizes(), ", and N, C and HxW are ", samples, ", ", channels,
              " and ", area);
}

void CheckWeightNorm(const Call& call) {
  const at::Tensor v = *call.Tensor("v");
  const auto g = call.Tensor("g");
  const int64_t dim = *call.Integer("dim");
  TORCH_CHECK(v.dim() > 0 && (dim == 0 || dim == v.dim() - 1 || (dim == -1 && !g)), "dim is ", dim,
              ", and must be the first or the last");
  Sizes sizes(v.dim(), 1);
  if (dim >= 0) sizes[dim] = v.size(dim);
  TORCH_CHECK(v.numel() > 0, "v has no elements");
  TORCH_CHECK(!g || g->sizes() == at::IntArrayRef(sizes), "g has the sizes ",
              g ? g->sizes() : at::IntArrayRef(), ", and must have ", sizes);
}

// ---- Others ---------------------------------------------------------------------------------------

void CheckUpsample(const Call& call) {
  const at::Tensor& x = call.First();
  const int64_t spatial = SpatialOf(call);
  TORCH_CHECK(x.dim() == spatial + 2, "input has ", x.dim(), " dimensions, and must have ",
              spatial + 2);
  for (int64_t i = 1; i < x.dim(); ++i) TORCH_CHECK(x.size(i) > 0, "input has no elements");
  const auto size = call.Integers("output_size");
  TORCH_CHECK(!size || std::ssize(*size) == spatial, "output_size must have ", spatial, " numbers");
  std::vector<double> scales = call.Numbers("scale_factors");
  TORCH_CHECK(scales.empty() || std::ssize(scales) == spatial, "scale_factors must have ", spatial,
              " numbers");
  for (const Name name : {"scales", "scales_d", "scales_h", "scales_w"}) {
    if (const auto scale = call.Number(name)) scales.push_back(*scale);
  }
  if (size) {
    // LibTorch would read where the scales say, beside the input if they do not go with the sizes.
    const Names names = spatial == 1   ? Names{"scales"}
                        : spatial == 2 ? Names{"scales_h", "scales_w"}
                                       : Names{"scales_d", "scales_h", "scales_w"};
    for (int64_t i = 0; i < spatial; ++i) {
      const auto scale = call.Number(names[i]);
      const int64_t from = x.size(2 + i), to = size->at(i);
      TORCH_CHECK(
          !scale || std::floor(static_cast<double>(from) * *scale) == static_cast<double>(to),
          names[i], " is ", scale.value_or(0), ", and does not go with the sizes ", from, " and ",
          to);
    }
  }
  for (const double scale : scales) {
    TORCH_CHECK(scale > 0 && scale < static_cast<double>(kMostInteger), "a scale is ", scale,
                ", and must be positive");
  }
}

void CheckShuffle(const Call& call) {
  const at::Tensor& x = call.First();
  TORCH_CHECK(x.dim() >= 3, "self has ", x.dim(), " dimensions");
  const int64_t groups = call.Integer("groups").value_or(1);
  TORCH_CHECK(x.size(1) % groups == 0, "self has ", x.size(1), " channels for ", groups, " groups");
}

void CheckAffineGrid(const Call& call) {
  const Sizes size = *call.Integers("size");
  const at::Tensor& theta = call.First();
  const int64_t spatial = std::ssize(size) - 2;
  TORCH_CHECK(spatial == 2 || spatial == 3, "size must have 4 or 5 numbers");
  TORCH_CHECK(theta.dim() == 3 && theta.size(0) == size[0] && theta.size(1) == spatial &&
                  theta.size(2) == spatial + 1,
              "theta has the sizes ", theta.sizes());
}

void CheckGrid(const Call& call) {
  const at::Tensor& x = call.First();
  const at::Tensor grid = *call.Tensor("grid");
  TORCH_CHECK((x.dim() == 4 || x.dim() == 5) && grid.dim() == x.dim() &&
                  grid.size(0) == x.size(0) && grid.size(-1) == x.dim() - 2,
              "input has the sizes ", x.sizes(), ", and grid has ", grid.sizes());
  for (int64_t i = 1; i < x.dim(); ++i) TORCH_CHECK(x.size(i) > 0, "input has no elements");
  TORCH_CHECK(x.dim() == 4 || call.Integer("interpolation_mode") != 2,
              "there is no bicubic interpolation of volumes");
}
// LibTorch makes indices of the border, or of a reflection, of values that are not finite.
void CheckFiniteGrid(const Call& call) {
  const at::Tensor grid = *call.Tensor("grid");
  constexpr int64_t kZeros = 0;
  if (call.Integer("padding_mode") == kZeros || !grid.device().is_cpu()) return;
  TORCH_CHECK(grid.detach().isfinite().all().item<bool>(), "grid has values that are not finite");
}

// Lists of tensors have few elements. LibTorch makes an object for each.
void CheckParts(const Call& call) {
  constexpr int64_t kMostParts = 1 << 16;
  int64_t parts = call.Integer("chunks").value_or(call.Integer("sections").value_or(1));
  const at::Tensor& x = call.First();
  const int64_t dim = call.Integer("dim").value_or(0);
  if (x.dim() > 0 && dim >= -x.dim() && dim < x.dim()) {
    const int64_t size = x.size(dim);
    if (call.schema().name() == "aten::unbind") parts = size;
    if (const auto each = call.Integer("split_size")) parts = size / std::max<int64_t>(1, *each);
  }
  TORCH_CHECK(parts <= kMostParts, "it makes ", parts, " tensors, and may make ", kMostParts);
}

void CheckMultinomial(const Call& call) {
  const at::Tensor& x = call.First();
  const int64_t count = *call.Integer("num_samples");
  TORCH_CHECK(x.numel() > 0 && count > 0 && (call.Is("replacement") || count <= x.size(-1)),
              "num_samples is ", count, " of the sizes ", x.sizes());
}

void CheckArange(const Call& call) {
  const auto step = call.values().size() > 2 && call.values()[2].isScalar()
                        ? std::abs(call.values()[2].toScalar().toDouble())
                        : 1.0;
  for (size_t i = 0; i < std::min<size_t>(3, call.values().size()); ++i) {
    if (!call.values()[i].isScalar()) continue;
    const double number = call.values()[i].toScalar().toDouble();
    TORCH_CHECK(std::abs(number) <= static_cast<double>(kMostInteger), "a bound is ", number);
  }
  TORCH_CHECK(step >= 1e-9, "step is ", step);
  const auto dtype = call.Dtype("dtype");
  TORCH_CHECK(!dtype || !at::isIntegralType(*dtype, true) || step >= 1, "step is ", step,
              ", and the result has integers");
}

// The numbers of weights of a recurrent layer, and their sizes.
void CheckRecurrent(const Call& call) {
  const Name& name = call.schema().name();
  const int64_t gates = name == "aten::lstm" ? 4 : name == "aten::gru" ? 3 : 1;
  const at::Tensor& x = call.First();
  TORCH_CHECK(x.dim() == 3 && x.numel() > 0, "input has the sizes ", x.sizes());
  const int64_t batch = x.size(call.Is("batch_first") ? 0 : 1);
  const int64_t layers = *call.Integer("num_layers"), ways = call.Is("bidirectional") ? 2 : 1;
  std::vector<at::Tensor> states = call.Tensors("hx");
  if (const auto state = call.Tensor("hx")) states = {*state};
  TORCH_CHECK(states.size() == (name == "aten::lstm" ? 2U : 1U), "hx has ", states.size(),
              " tensors");
  const int64_t units = states[0].dim() == 3 ? states[0].size(2) : 0;
  TORCH_CHECK(units > 0, "hx has no units");
  for (const at::Tensor& state : states) {
    TORCH_CHECK(state.sizes() == at::IntArrayRef({layers * ways, batch, units}),
                "hx has the sizes ", state.sizes());
    TORCH_CHECK(state.scalar_type() == x.scalar_type(), "hx and input have different dtypes");
  }
  const std::vector<at::Tensor> weights = call.Tensors("params");
  const int64_t each = call.Is("has_biases") ? 4 : 2;
  TORCH_CHECK(std::ssize(weights) == layers * ways * each, "params has ", weights.size(),
              " tensors, and must have ", layers * ways * each);
  for (int64_t i = 0; i < std::ssize(weights); ++i) {
    const int64_t inputs = i / each / ways == 0 ? x.size(2) : units * ways;
    Sizes sizes{gates * units};
    if (i % each < 2) sizes.push_back(i % each == 0 ? inputs : units);
    TORCH_CHECK(weights[i].sizes() == at::IntArrayRef(sizes), "tensor ", i,
                " of params has the sizes ", weights[i].sizes(), ", and must have ", sizes);
    TORCH_CHECK(weights[i].scalar_type() == x.scalar_type(),
                "params and input have different dtypes");
  }
}

void CheckAttention(const Call& call) {
  const at::Tensor q = *call.Tensor("query"), k = *call.Tensor("key"), v = *call.Tensor("value");
  TORCH_CHECK(q.dim() >= 3 && k.dim() == q.dim() && v.dim() == q.dim(),
              "query, key and value have ", q.dim(), ", ", k.dim(), " and ", v.dim(),
              " dimensions");
  TORCH_CHECK(
      q.size(-1) == k.size(-1) && k.size(-2) == v.size(-2) && q.size(-1) > 0 && v.size(-1) > 0,
      "query, key and value have the sizes ", q.sizes(), ", ", k.sizes(), " and ", v.sizes());
  TORCH_CHECK(!call.Is("enable_gqa") || (k.size(-3) > 0 && v.size(-3) > 0),
              "key or value has no heads");
  const double dropout = call.Number("dropout_p").value_or(0);
  TORCH_CHECK(dropout >= 0 && dropout <= 1, "dropout_p is ", dropout);
}

void CheckEmbedding(const Call& call) {
  const at::Tensor weight = *call.Tensor("weight");
  TORCH_CHECK(weight.dim() == 2, "weight has ", weight.dim(), " dimensions");
}

void CheckEmbeddingBag(const Call& call) {
  CheckEmbedding(call);
  const at::Tensor indices = *call.Tensor("indices"), offsets = *call.Tensor("offsets");
  TORCH_CHECK(indices.dim() == 1 && offsets.dim() == 1, "indices and offsets must be vectors");
  TORCH_CHECK(offsets.size(0) > 0 && indices.size(0) > 0, "indices or offsets are empty");
  const auto factors = call.Tensor("per_sample_weights");
  TORCH_CHECK(!factors || (factors->sizes() == indices.sizes() && call.Integer("mode") == 0),
              "per_sample_weights does not fit indices");
  TORCH_CHECK(!call.Is("include_last_offset") || offsets.size(0) > 1, "offsets has no bag");
}
void CheckBags(const Call& call) {
  const at::Tensor indices = *call.Tensor("indices"), offsets = *call.Tensor("offsets");
  CheckIndices("indices", indices, call.Tensor("weight")->size(0));
  if (!offsets.device().is_cpu()) return;
  const at::Tensor places = offsets.detach().to(at::kLong);
  TORCH_CHECK(!call.Is("include_last_offset") || places[-1].item<int64_t>() == indices.size(0),
              "the last of offsets is not the number of indices");
  TORCH_CHECK(places[0].item<int64_t>() == 0 && places.diff().ge(0).all().item<bool>() &&
                  places[-1].item<int64_t>() <= indices.size(0),
              "offsets do not ascend from 0 to the number of indices");
}

// A view such as that of expand() takes no memory, whatever its size is. LibTorch counts the bytes of a tensor in 63 bits.
void CheckExpand(const Call& call) {
  constexpr int64_t kMostElements = int64_t{1} << 40;
  int64_t elements = 1;
  for (const int64_t size : call.Integers("size").value_or(Sizes())) {
    if (size <= 0) continue;  // -1 stands for the tensor's own size
    TORCH_CHECK(size <= kMostElements / elements, "size is ",
                at::IntArrayRef(*call.Integers("size")), ", and the result may have at most ",
                kMostElements, " elements");
    elements *= size;
  }
}

// ---- The table ------------------------------------------------------------------------------------

struct Contract {
  Names operations;                             // without "aten::" and overload
  std::vector<Rule> sizes, dtypes{}, values{};  // by Parts
};

const std::vector<Contract>& Table() {
  static const Rule kWindow = Positive({"stride", "dilation", "kernel_size", "groups"});
  // Products with sizes stay below 63 bits.
  static const Rule kSmall =
      AtMost(1 << 20, {"stride", "dilation", "kernel_size", "groups", "padding", "output_padding"});
  static const Rule kPadding = NotNegative({"padding", "output_padding", "output_size"});
  static const Rule kReduction = Between(0, 2, {"reduction"});
  static const auto& table = *new std::vector<Contract>{
      {{"conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d",
        "convolution"},
       {kWindow, kPadding, kSmall, CheckConvolution}},
      {{"max_pool1d", "max_pool2d", "max_pool3d", "max_pool1d_with_indices",
        "max_pool2d_with_indices", "max_pool3d_with_indices", "avg_pool1d", "avg_pool2d",
        "avg_pool3d"},
       {kWindow, kPadding, kSmall, CheckPool}},
      {{"adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d",
        "adaptive_max_pool2d", "adaptive_max_pool3d"},
       {kPadding, CheckAdaptivePool}},
      {{"max_unpool2d"},
       {kPadding, SameSizes("self", {"indices"}), CheckUnpool},
       {},
       {CheckUnpoolIndices}},
      {{"reflection_pad1d", "reflection_pad2d", "reflection_pad3d", "replication_pad1d",
        "replication_pad2d", "replication_pad3d"},
       {Between(-(1 << 20), 1 << 20, {"padding"}), CheckPad}},
      {{"im2col", "col2im"}, {kWindow, kPadding, kSmall, CheckColumns}},

      {{"batch_norm", "native_batch_norm", "instance_norm"},
       {Dimensions(2, 5, {"input"}),
        Floats({"input", "weight", "bias", "running_mean", "running_var"}),
        Vectors("input", 1, {"weight", "bias", "running_mean", "running_var"}), CheckBatchNorm},
       {SameDtype("weight", {"bias"})}},
      {{"native_layer_norm"},
       {NotEmpty({"input"}), Floats({"input", "weight", "bias"}), CheckLayerNorm}},
      {{"layer_norm", "rms_norm", "_fused_rms_norm"},
       {Floats({"input", "weight", "bias"}), CheckLayerNorm}},
      {{"native_group_norm"},
       {Dimensions(2, kMostDimensions, {"input"}), Floats({"input", "weight", "bias"}),
        Positive({"group"}), Vectors("input", 1, {"weight", "bias"}), CheckGroupNorm},
       {},
       {Contiguous({"weight", "bias"})}},
      {{"group_norm"},
       {Dimensions(2, kMostDimensions, {"input"}), Floats({"input", "weight", "bias"}),
        Positive({"num_groups"}), Vectors("input", 1, {"weight", "bias"}), CheckGroupNorm}},
      {{"_weight_norm", "norm_except_dim"},
       {Floats({"v"}), CheckWeightNorm},
       {SameDtype("v", {"g"})}},

      {{"upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "upsample_linear1d",
        "upsample_bilinear2d", "upsample_bicubic2d", "upsample_trilinear3d",
        "_upsample_nearest_exact1d", "_upsample_nearest_exact2d", "_upsample_nearest_exact3d",
        "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa"},
       {Positive({"output_size"}), CheckUpsample}},
      {{"pixel_shuffle", "pixel_unshuffle", "channel_shuffle", "native_channel_shuffle"},
       {NotEmpty({"self"}), Positive({"groups", "upscale_factor", "downscale_factor"}),
        CheckShuffle}},
      {{"affine_grid_generator"}, {NotNegative({"size"}), Floats({"theta"}), CheckAffineGrid}},
      {{"grid_sampler", "grid_sampler_2d", "grid_sampler_3d"},
       {Between(0, 2, {"interpolation_mode", "padding_mode"}), Floats({"input", "grid"}),
        CheckGrid},
       {SameDtype("input", {"grid"})},
       {CheckFiniteGrid}},

      {{"embedding"}, {Integers({"indices"}), CheckEmbedding}},
      {{"embedding_bag"},
       {Integers({"indices", "offsets"}), SameDtype("indices", {"offsets"}),
        Between(0, 2, {"mode"}), CheckEmbeddingBag},
       {SameDtype("weight", {"per_sample_weights"})},
       {CheckBags}},
      {{"lstm", "gru", "rnn_relu", "rnn_tanh"},
       {Positive({"num_layers"}), Floats({"input"}), CheckRecurrent}},
      {{"scaled_dot_product_attention"},
       {Floats({"query", "key", "value"}), CheckAttention},
       {SameDtype("query", {"key", "value"})}},

      {{"binary_cross_entropy"},
       {kReduction, SameSizes("self", {"target"})},
       {SameDtype("self", {"target", "weight"})}},
      {{"huber_loss"}, {kReduction}, {SameDtype("self", {"target"})}},
      {{"multilabel_margin_loss"}, {kReduction, NotEmpty({"self"})}},
      {{"nll_loss", "nll_loss2d", "nll_loss_nd", "cross_entropy_loss", "multi_margin_loss",
        "smooth_l1_loss", "mse_loss", "l1_loss", "kl_div", "soft_margin_loss",
        "binary_cross_entropy_with_logits", "cosine_embedding_loss", "hinge_embedding_loss",
        "margin_ranking_loss", "poisson_nll_loss", "triplet_margin_loss"},
       {kReduction}},
      {{"index_select", "index_add", "index_add_", "index_copy", "index_copy_", "index_fill",
        "index_fill_", "gather", "take", "scatter", "scatter_", "scatter_add", "scatter_add_",
        "scatter_reduce", "scatter_reduce_"},
       {Integers({"index"})}},
      {{"unbind", "split", "unsafe_split", "chunk", "unsafe_chunk", "tensor_split", "hsplit",
        "vsplit", "dsplit"},
       {CheckParts}},
      {{"expand", "broadcast_to"}, {CheckExpand}},
      {{"arange"}, {CheckArange}},
      // All integers up to 2^53 are float64 numbers.
      {{"random", "random_"}, {Between(-(int64_t{1} << 53), int64_t{1} << 53, {"from", "to"})}},
      {{"multinomial"}, {Dimensions(1, 2, {"self"}), Floats({"self"}), CheckMultinomial}},
  };
  return table;
}

const std::unordered_map<std::string, const Contract*>& ByName() {
  static const auto& by_name = *[] {
    auto* contracts = new std::unordered_map<std::string, const Contract*>;
    for (const Contract& contract : Table()) {
      for (const Name& name : contract.operations) contracts->emplace("aten::" + name, &contract);
    }
    return contracts;
  }();
  return by_name;
}

}  // namespace

void CheckContract(const c10::OperatorHandle& operation, const std::vector<IValue>& arguments,
                   Parts parts) {
  const c10::FunctionSchema& schema = operation.schema();
  for (size_t i = 0; parts.sizes && i < arguments.size(); ++i)
    CheckArgument(schema.arguments()[i], arguments[i]);
  const auto found = ByName().find(schema.name());
  if (found == ByName().end()) return;
  const Call call(schema, arguments);
  const Contract& contract = *found->second;
  const auto check = [&](bool is_asked, const std::vector<Rule>& rules) {
    if (!is_asked) return;
    for (const Rule& rule : rules) rule(call);
  };
  check(parts.sizes, contract.sizes);
  check(parts.dtypes, contract.dtypes);
  check(parts.values, contract.values);
}

Parts UnforeseenParts(const std::string& operation) {
  const auto found = ByName().find(operation);
  if (found == ByName().end()) return {.sizes = false, .dtypes = false, .values = false};
  const Contract& contract = *found->second;
  return {.sizes = false, .dtypes = !contract.dtypes.empty(), .values = !contract.values.empty()};
}

void CheckUnforeseen(const c10::OperatorHandle& operation, const std::vector<IValue>& arguments,
                     Parts parts, at::Device device, bool autocast) {
  if (parts.dtypes) {
    // Without autocast the dtypes were foretold. With it, the operations that it knows get arguments of one dtype.
    const auto key =
        device.is_cuda() ? c10::DispatchKey::AutocastCUDA : c10::DispatchKey::AutocastCPU;
    parts.dtypes = !device.is_meta() && AutocastState::Now(device.type()).enabled &&
                   !(autocast && operation.hasKernelForDispatchKey(key));
  }
  if (parts.sizes || parts.dtypes || parts.values) CheckContract(operation, arguments, parts);
}

}  // namespace lockstep::exported
