#include "models/imported/fuse_generated.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <memory>
#include <numbers>
#include <string_view>
#include <utility>

#include "base/ceil_divide.h"
#include "base/tensor/foretold_gpu.h"
#include "models/imported/fuse_linear.h"
#include "models/imported/node_values.h"

namespace lockstep::exported {
namespace {

using c10::IValue;
using ops::Dims;
using ops::Sizes;
using ops::TensorTerms;
using ops::TermId;

// The largest number of nodes and of inputs of a group. They are limited because a kernel keeps the intermediate values
// in registers, and a GPU thread has few of them.
constexpr size_t kMostNodes = 64;
constexpr size_t kMostInputs = 16;

using Terms = std::vector<TermId>;  // the operands of an operation; numbers are constant terms

// Which type LibTorch gives the result of an operation.
enum class ResultType {
  kPromoted,  // that to which the operands' types are promoted
  kFirst,     // that of the first operand
  kWide,      // as kPromoted, and float32 under autocast
};

struct Operation {
  std::string_view name;
  std::vector<size_t>
      operands;  // the arguments that are operands, or lists of them; the others are constants
  // Returns the term of the result; -1: there is none for the operands' sizes.
  std::function<TermId(TensorTerms& to, const Terms& of, const Node& node)> term;
  ResultType type = ResultType::kPromoted;
  // Returns whether the arguments after the operands are of a kind that `term` takes; none: they are numbers.
  std::function<bool(const Node& node)> takes{};
  // The operand that is a condition. LibTorch computes otherwise with bools, so they can be no other operands.
  std::optional<size_t> condition{};
};

TermId Least(TensorTerms& to, TermId a, TermId b) { return to.IfAtMost(a, b, a, b); }

// Return x, limited to a range. NaN stays NaN.
TermId AtLeast(TensorTerms& to, TermId x, double low) {
  const TermId least = to.Constant(low);
  return to.IfAtMost(x, least, least, x);
}
TermId AtMost(TensorTerms& to, TermId x, double high) {
  const TermId most = to.Constant(high);
  return to.IfAtMost(most, x, most, x);
}
TermId Between(TensorTerms& to, TermId x, double low, double high) {
  return AtMost(to, AtLeast(to, x, low), high);
}

TermId Times(TensorTerms& to, TermId x, double number) {
  return to.Product(to.Constant(number), x);
}

// Returns hardsigmoid(x) = min(max(x + 3, 0), 6) / 6.
TermId HardSigmoid(TensorTerms& to, TermId x) {
  return Times(to, Between(to, to.Sum(x, to.Constant(3)), 0, 6), 1.0 / 6);
}

TermId Gelu(TensorTerms& to, TermId x, bool tanh) {
  const double root = std::numbers::sqrt2;
  const TermId share =
      tanh ? to.Tanh(Times(to, to.Sum(x, Times(to, to.Product(x, to.Product(x, x)), 0.044715)),
                           root * std::numbers::inv_sqrtpi))
           : to.Erf(Times(to, x, 1 / root));
  return to.Product(Times(to, x, 0.5), to.Sum(to.Constant(1), share));
}

TermId Elu(TensorTerms& to, TermId x, double alpha, double scale, double input_scale) {
  const TermId zero = to.Constant(0);
  // The argument of exp() is limited to at most 0: for large x exp() would overflow, and the gradient, 0 times
  // infinity, would be NaN.
  const TermId raised = to.Exp(Times(to, Least(to, x, zero), input_scale));
  return to.IfAtMost(x, zero, Times(to, to.Difference(raised, to.Constant(1)), alpha * scale),
                     Times(to, x, scale));
}

// Returns the dimensions that a list names, in a tensor of `rank` dimensions; all if the list is empty or None.
Dims DimsOf(const Argument& argument, size_t rank) {
  Dims dims = 0;
  for (const std::optional<int64_t>& dim : IntegersOf(argument)) {
    dims |= 1U << static_cast<size_t>(*dim < 0 ? *dim + static_cast<int64_t>(rank) : *dim);
  }
  return dims != 0 ? dims : (1U << rank) - 1;
}

size_t DimOf(const Argument& argument, size_t rank) {
  const auto dim = static_cast<int64_t>(*NumberOf(argument));
  return static_cast<size_t>(dim < 0 ? dim + static_cast<int64_t>(rank) : dim);
}

// Leaves out the reduced dimensions, unless `keeps`.
TermId WithoutDims(TensorTerms& to, TermId reduced, Dims dims, bool keeps) {
  if (keeps) return reduced;
  Sizes sizes;
  for (size_t i = 0; i < to.SizesOf(reduced).size(); ++i) {
    if ((dims & (1U << i)) == 0) sizes.push_back(to.SizesOf(reduced)[i]);
  }
  return to.Reshape(reduced, sizes);
}

bool IsFlag(const Argument& argument) { return IsConstant(argument) && argument.constant.isBool(); }
bool IsNone(const Argument& argument) { return IsConstant(argument, IValue()); }

// Returns whether the argument is a list of known dimensions, None, or no dimensions.
bool AreDims(const Argument& argument) {
  const auto dims = IntegersOf(argument);
  const bool is_list = argument.kind == Argument::Kind::kList ||
                       (IsConstant(argument) && argument.constant.isList());
  return IsNone(argument) ||
         (is_list && std::ranges::all_of(dims, [](const auto& dim) { return dim.has_value(); }));
}

// Returns whether the arguments from number `first` on are the dimensions of a reduction, whether it keeps them, and the
// type None.
bool AreReduced(const Node& node, size_t first) {
  const std::vector<Argument>& arguments = node.arguments;
  return arguments.size() == first + 3 && AreDims(arguments[first]) &&
         IsFlag(arguments[first + 1]) && IsNone(arguments[first + 2]);
}

bool IsNumber(const Argument& argument) { return NumberOf(argument).has_value(); }

// Returns x raised to a power, of which only some are known.
bool IsKnownPower(double power) {
  return power == 2 || power == 3 || power == 0.5 || power == -0.5 || power == -1;
}
TermId Power(TensorTerms& to, TermId x, double power) {
  if (power == 2) return to.Product(x, x);
  if (power == 3) return to.Product(to.Product(x, x), x);
  if (power == 0.5) return to.Sqrt(x);
  return to.Quotient(to.Constant(1), power == -1 ? x : to.Sqrt(x));
}

TermId Softmax(TensorTerms& to, TermId x, Dims dims) {
  const TermId raised = to.Exp(to.Difference(x, to.MaxOver(x, dims)));
  return to.Quotient(raised, to.SumOver(raised, dims));
}

// Returns the piece of x that a call of aten::slice takes. LibTorch limits where it begins and ends to x.
TermId Piece(TensorTerms& to, TermId x, const Node& slice) {
  const size_t dim = DimOf(slice.arguments[1], to.SizesOf(x).size());
  const auto size = static_cast<double>(to.SizesOf(x)[dim]);
  const auto place = [&](const Argument& argument, double otherwise) {
    const double index = NumberOf(argument).value_or(otherwise);
    return static_cast<int64_t>(std::clamp(index < 0 ? index + size : index, 0.0, size));
  };
  const int64_t begin = place(slice.arguments[2], 0);
  const int64_t end = place(slice.arguments[3], size);
  const auto step = static_cast<int64_t>(*NumberOf(slice.arguments[4]));
  return to.Slice(x, dim, begin, std::max<int64_t>(CeilDivide(end - begin, step), 0), step);
}

// The mean and the biased variance of a term over some dimensions. They are computed from the differences to the first
// value, so that they are right where the values are large beside their differences.
struct Moments {
  TermId mean, variance;
};
Moments MomentsOf(TensorTerms& to, TermId x, Dims dims) {
  const TermId first = to.FirstOver(x, dims);
  const TermId shifted = to.Difference(x, first);
  const TermId mean_shift = to.MeanOver(shifted, dims);
  return {.mean = to.Sum(first, mean_shift),
          .variance = to.Difference(to.MeanOver(to.Product(shifted, shifted), dims),
                                    to.Product(mean_shift, mean_shift))};
}

// Returns (x - mean) / sqrt(variance + epsilon).
TermId Standardized(TensorTerms& to, TermId x, TermId mean, TermId variance, double epsilon) {
  const TermId scale = to.Quotient(to.Constant(1), to.Sqrt(to.Sum(variance, to.Constant(epsilon))));
  return to.Product(to.Difference(x, mean), scale);
}

// Returns the norm of x over its last dimension, without weights.
TermId LayerNorm(TensorTerms& to, TermId x, double epsilon) {
  const Moments moments = MomentsOf(to, x, 1U << (to.SizesOf(x).size() - 1));
  return Standardized(to, x, moments.mean, moments.variance, epsilon);
}

// Returns x with the zeros around it that a call of aten::pad adds; -1 if it has too few dimensions.
TermId ZerosAround(TensorTerms& to, TermId x, const Node& pad) {
  const std::vector<std::optional<int64_t>> pads = IntegersOf(pad.arguments[1]);
  const size_t rank = to.SizesOf(x).size();
  if (pads.size() > 2 * rank) return -1;
  for (size_t i = 0; i < pads.size(); i += 2) {  // from the last dimension on
    const size_t dim = rank - 1 - i / 2;
    x = to.Pad(x, dim, *pads[i], to.SizesOf(x)[dim] + *pads[i] + *pads[i + 1]);
  }
  return x;
}

// Returns the group norm of x [samples, channels, ...]. The means and variances of the channels are put together to those
// of the groups.
TermId GroupNorm(TensorTerms& to, TermId x, int64_t groups, double epsilon) {
  const Sizes sizes = to.SizesOf(x);
  const Moments of_channel = MomentsOf(to, x, ((1U << sizes.size()) - 1) & ~3U);
  Sizes per_channel(sizes.size(), 1);
  per_channel[0] = sizes[0];
  per_channel[1] = sizes[1];
  const Sizes by_group = {sizes[0], groups, sizes[1] / groups};
  constexpr Dims kChannels = 1U << 2;
  const TermId means = to.Reshape(of_channel.mean, by_group);
  const TermId mean = to.MeanOver(means, kChannels);
  const TermId apart = to.Difference(means, mean);
  const TermId variance = to.MeanOver(
      to.Sum(to.Reshape(of_channel.variance, by_group), to.Product(apart, apart)), kChannels);
  const auto for_channels = [&](TermId term) {
    return to.Reshape(to.Expand(term, by_group), per_channel);
  };
  return Standardized(to, x, for_channels(mean), for_channels(variance), epsilon);
}

// Returns whether an average pooling cuts images into small square tiles without padding, if their sizes are multiples of
// the tiles' or it leaves out what fills no tile.
bool CutsIntoTiles(const Node& node) {
  constexpr int64_t kMostSide = 4;
  const std::vector<Argument>& arguments = node.arguments;
  const auto side = SingleOf(arguments[1]);
  const bool steps = IntegersOf(arguments[2]).empty() || SingleOf(arguments[2]) == side;
  return IsValue(arguments[0]) && side && *side > 0 && *side <= kMostSide && steps &&
         SingleOf(arguments[3]) == 0 && IsFlag(arguments[4]) && IsNone(arguments[6]);
}

// Returns the means of the square tiles of `side` pixels into which the images x [..., height, width] are cut. Pixels at
// the edges that fill no tile are left out; if `keeps_rest` they must not be, and -1 is returned where there are some.
TermId MeanOfTiles(TensorTerms& to, TermId x, int64_t side, bool keeps_rest) {
  const size_t rows = to.SizesOf(x).size() - 2;
  const bool has_rest = to.SizesOf(x)[rows] % side != 0 || to.SizesOf(x)[rows + 1] % side != 0;
  if (keeps_rest && has_rest) return -1;
  const TermId sum = to.SumOfGroups(to.SumOfGroups(x, rows, side), rows + 1, side);
  return Times(to, sum, 1 / static_cast<double>(side * side));
}

// Returns how many times as high and as wide aten::upsample_nearest2d makes images; nothing if it is another number than 2
// or 4, or given as a size. (LibTorch's own rounding makes multiples of others uneven.)
std::optional<int64_t> TimesEnlarged(const Node& node) {
  if (node.operation->schema().overload_name() != "vec" || !IsNone(node.arguments[1]) ||
      !IsConstant(node.arguments[2]) || !node.arguments[2].constant.isDoubleList()) {
    return std::nullopt;
  }
  const std::vector<double> scales = node.arguments[2].constant.toDoubleVector();
  const bool is_known =
      scales.size() == 2 && scales[0] == scales[1] && (scales[0] == 2 || scales[0] == 4);
  return is_known ? std::optional(static_cast<int64_t>(scales[0])) : std::nullopt;
}

// Returns a channel's weights, with dimensions of size 1 for the pixels of x.
TermId ForChannels(TensorTerms& to, TermId weights, TermId x) {
  Sizes sizes(to.SizesOf(x).size() - 1, 1);
  sizes[0] = to.SizesOf(weights)[0];
  return to.Reshape(weights, sizes);
}

// Returns whether the node is a dropout that drops elements.
bool Draws(const Node& node) {
  return NameOf(node) == "aten::dropout" && IsConstant(node.arguments[2], true) &&
         NumberOf(node.arguments[1]) != 0;
}

// Returns the entry of the table for the node's operation. Returns null if there is no entry, or if an argument does
// not fit the entry: operands are tensors or constant numbers, and all other arguments are constants.
const Operation* OperationOf(const Node& node) {
  static const auto number = [](const Node& of, size_t i) { return *NumberOf(of.arguments[i]); };
  static const std::vector<Operation> operations = {
      {"aten::add",
       {0, 1},
       [](auto& to, const auto& of, const Node& node) {
         return to.Sum(of[0], Times(to, of[1], number(node, 2)));
       }},
      {"aten::sub",
       {0, 1},
       [](auto& to, const auto& of, const Node& node) {
         return to.Difference(of[0], Times(to, of[1], number(node, 2)));
       }},
      {"aten::rsub",
       {0, 1},
       [](auto& to, const auto& of, const Node& node) {
         return to.Difference(of[1], Times(to, of[0], number(node, 2)));
       }},
      {"aten::mul",
       {0, 1},
       [](auto& to, const auto& of, const Node&) { return to.Product(of[0], of[1]); }},
      {"aten::div",
       {0, 1},
       [](auto& to, const auto& of, const Node&) { return to.Quotient(of[0], of[1]); }},
      {"aten::neg",
       {0},
       [](auto& to, const auto& of, const Node&) { return Times(to, of[0], -1); }},
      {"aten::square",
       {0},
       [](auto& to, const auto& of, const Node&) { return to.Product(of[0], of[0]); }},
      {"aten::sigmoid",
       {0},
       [](auto& to, const auto& of, const Node&) { return to.Sigmoid(of[0]); }},
      {"aten::tanh", {0}, [](auto& to, const auto& of, const Node&) { return to.Tanh(of[0]); }},
      {"aten::relu",
       {0},
       [](auto& to, const auto& of, const Node&) {
         const TermId zero = to.Constant(0);
         return to.IfAtMost(of[0], zero, zero, of[0]);
       }},
      {"aten::silu",
       {0},
       [](auto& to, const auto& of, const Node&) { return to.Product(of[0], to.Sigmoid(of[0])); }},
      {"aten::gelu",
       {0},
       [](auto& to, const auto& of, const Node& node) {
         return Gelu(to, of[0], IsConstant(node.arguments[1], "tanh"));
       },
       ResultType::kPromoted,
       [](const Node& node) {
         return IsConstant(node.arguments[1], "none") || IsConstant(node.arguments[1], "tanh");
       }},
      {"aten::hardsigmoid",
       {0},
       [](auto& to, const auto& of, const Node&) { return HardSigmoid(to, of[0]); }},
      {"aten::hardswish",
       {0},
       [](auto& to, const auto& of, const Node&) {
         return to.Product(of[0], HardSigmoid(to, of[0]));
       }},
      {"aten::hardtanh",
       {0},
       [](auto& to, const auto& of, const Node& node) {
         return Between(to, of[0], number(node, 1), number(node, 2));
       }},
      {"aten::clamp",
       {0},
       [](auto& to, const auto& of, const Node& node) {
         const auto low = NumberOf(node.arguments[1]), high = NumberOf(node.arguments[2]);
         const TermId raised = low ? AtLeast(to, of[0], *low) : of[0];
         return high ? AtMost(to, raised, *high) : raised;
       },
       ResultType::kPromoted,
       [](const Node& node) {
         const auto is_limit = [](const Argument& of) { return IsNumber(of) || IsNone(of); };
         return is_limit(node.arguments[1]) && is_limit(node.arguments[2]);
       }},
      {"aten::clamp_min",
       {0},
       [](auto& to, const auto& of, const Node& node) {
         return AtLeast(to, of[0], number(node, 1));
       }},
      {"aten::clamp_max",
       {0},
       [](auto& to, const auto& of, const Node& node) {
         return AtMost(to, of[0], number(node, 1));
       }},
      {"aten::expand_as",
       {0, 1},
       [](auto& to, const auto& of, const Node&) { return to.Expand(of[0], to.SizesOf(of[1])); },
       ResultType::kFirst,
       [](const Node& node) { return IsValue(node.arguments[0]) && IsValue(node.arguments[1]); }},
      {"aten::relu6",
       {0},
       [](auto& to, const auto& of, const Node&) { return Between(to, of[0], 0, 6); }},
      {"aten::leaky_relu",
       {0},
       [](auto& to, const auto& of, const Node& node) {
         return to.IfAtMost(of[0], to.Constant(0), Times(to, of[0], number(node, 1)), of[0]);
       }},
      {"aten::elu",
       {0},
       [](auto& to, const auto& of, const Node& node) {
         return Elu(to, of[0], number(node, 1), number(node, 2), number(node, 3));
       }},
      {"aten::exp",
       {0},
       [](auto& to, const auto& of, const Node&) { return to.Exp(of[0]); },
       ResultType::kWide},
      {"aten::sqrt", {0}, [](auto& to, const auto& of, const Node&) { return to.Sqrt(of[0]); }},
      {"aten::rsqrt",
       {0},
       [](auto& to, const auto& of, const Node&) { return Power(to, of[0], -0.5); },
       ResultType::kWide},
      {"aten::pow",
       {0},
       [](auto& to, const auto& of, const Node& node) { return Power(to, of[0], number(node, 1)); },
       ResultType::kWide,
       [](const Node& node) {
         return node.operation->schema().overload_name() == "Tensor_Scalar" &&
                IsNumber(node.arguments[1]) && IsKnownPower(number(node, 1));
       }},
      {"aten::addcmul",
       {0, 1, 2},
       [](auto& to, const auto& of, const Node& node) {
         return to.Sum(of[0], Times(to, to.Product(of[1], of[2]), number(node, 3)));
       }},
      {"aten::dropout",
       {0},
       [](auto& to, const auto& of, const Node& node) {
         if (!Draws(node)) return of[0];
         // The second operand is the key. The value's number tells the dropouts of a group apart.
         return to.Product(
             of[0], to.Keep(of[1], number(node, 1), node.results[0].value, to.SizesOf(of[0])));
       },
       ResultType::kPromoted,
       [](const Node& node) {
         const auto drops = NumberOf(node.arguments[1]);
         return IsFlag(node.arguments[2]) &&
                (IsConstant(node.arguments[2], false) || (drops && *drops >= 0 && *drops < 1));
       }},
      {"aten::sum",
       {0},
       [](auto& to, const auto& of, const Node& node) {
         const Dims dims = DimsOf(node.arguments[1], to.SizesOf(of[0]).size());
         return WithoutDims(to, to.SumOver(of[0], dims), dims, node.arguments[2].constant.toBool());
       },
       ResultType::kWide,
       [](const Node& node) { return AreReduced(node, 1); }},
      {"aten::mean",
       {0},
       [](auto& to, const auto& of, const Node& node) {
         const Dims dims = DimsOf(node.arguments[1], to.SizesOf(of[0]).size());
         return WithoutDims(to, to.MeanOver(of[0], dims), dims,
                            node.arguments[2].constant.toBool());
       },
       ResultType::kPromoted,
       [](const Node& node) { return AreReduced(node, 1); }},
      {"aten::linalg_vector_norm",
       {0},
       [](auto& to, const auto& of, const Node& node) {
         const Dims dims = DimsOf(node.arguments[2], to.SizesOf(of[0]).size());
         const TermId squares = to.SumOver(to.Product(of[0], of[0]), dims);
         return WithoutDims(to, to.Sqrt(squares), dims, node.arguments[3].constant.toBool());
       },
       ResultType::kWide,
       [](const Node& node) { return NumberOf(node.arguments[1]) == 2 && AreReduced(node, 2); }},
      {"aten::softmax",
       {0},
       [](auto& to, const auto& of, const Node& node) {
         return Softmax(to, of[0], 1U << DimOf(node.arguments[1], to.SizesOf(of[0]).size()));
       },
       ResultType::kWide,
       [](const Node& node) { return IsNumber(node.arguments[1]) && IsNone(node.arguments[2]); }},
      {"aten::slice",
       {0},
       [](auto& to, const auto& of, const Node& node) { return Piece(to, of[0], node); },
       ResultType::kPromoted,
       [](const Node& node) {
         const auto is_place = [&](size_t i) {
           return IsNumber(node.arguments[i]) || IsNone(node.arguments[i]);
         };
         return IsNumber(node.arguments[1]) && is_place(2) && is_place(3) &&
                NumberOf(node.arguments[4]).value_or(0) >= 1;
       }},
      {"aten::pad",
       {0},
       [](auto& to, const auto& of, const Node& node) { return ZerosAround(to, of[0], node); },
       ResultType::kPromoted,
       [](const Node& node) {
         const std::vector<std::optional<int64_t>> pads = IntegersOf(node.arguments[1]);
         return IsValue(node.arguments[0]) && pads.size() % 2 == 0 &&
                std::ranges::all_of(pads, [](const auto& pad) { return pad && *pad >= 0; }) &&
                IsConstant(node.arguments[2], "constant") &&
                (IsNone(node.arguments[3]) || NumberOf(node.arguments[3]) == 0);
       }},
      {"aten::cat",
       {0},
       [](auto& to, const auto& of, const Node& node) {
         const size_t dim = DimOf(node.arguments[1], to.SizesOf(of[0]).size());
         const int64_t first = to.SizesOf(of[0])[dim];
         const int64_t size = first + to.SizesOf(of[1])[dim];
         return to.Sum(to.Pad(of[0], dim, 0, size), to.Pad(of[1], dim, first, size));
       },
       ResultType::kPromoted,
       [](const Node& node) {
         const Argument& list = node.arguments[0];
         return list.kind == Argument::Kind::kList && list.elements.size() == 2 &&
                std::ranges::all_of(list.elements,
                                    [](const Argument& of) { return IsValue(of); }) &&
                IsNumber(node.arguments[1]);
       }},
      {"aten::avg_pool2d",
       {0},
       [](auto& to, const auto& of, const Node& node) {
         return MeanOfTiles(to, of[0], *SingleOf(node.arguments[1]),
                            /*keeps_rest=*/node.arguments[4].constant.toBool());
       },
       ResultType::kPromoted,
       CutsIntoTiles},
      {"aten::where",
       {0, 1, 2},
       [](auto& to, const auto& of, const Node&) {
         return to.IfAtMost(of[0], to.Constant(0), of[2], of[1]);
       },
       ResultType::kPromoted,
       [](const Node& node) {
         const std::vector<Argument>& arguments = node.arguments;
         const auto is_operand = [](const Argument& of) { return IsValue(of) || IsNumber(of); };
         return arguments.size() == 3 && IsValue(arguments[0]) && is_operand(arguments[1]) &&
                is_operand(arguments[2]) && (IsValue(arguments[1]) || IsValue(arguments[2]));
       },
       /*condition=*/0},
      {"aten::masked_fill",
       {0, 1, 2},
       [](auto& to, const auto& of, const Node&) {
         return to.IfAtMost(of[1], to.Constant(0), of[0], of[2]);
       },
       ResultType::kPromoted,
       [](const Node& node) {
         return IsValue(node.arguments[0]) && IsValue(node.arguments[1]) &&
                IsNumber(node.arguments[2]);
       },
       /*condition=*/1},
      {"aten::upsample_nearest2d",
       {0},
       [](auto& to, const auto& of, const Node& node) {
         const size_t rows = to.SizesOf(of[0]).size() - 2;
         const int64_t times = *TimesEnlarged(node);
         return to.Repeat(to.Repeat(of[0], rows, times), rows + 1, times);
       },
       ResultType::kPromoted,
       [](const Node& node) { return IsValue(node.arguments[0]) && TimesEnlarged(node); }},
      {"aten::layer_norm",
       {0, 2, 3},
       [](auto& to, const auto& of, const Node& node) {
         return to.Sum(to.Product(LayerNorm(to, of[0], number(node, 4)), of[1]), of[2]);
       },
       ResultType::kWide,
       [](const Node& node) {
         const std::vector<Argument>& arguments = node.arguments;
         return IntegersOf(arguments[1]).size() == 1 && IsValue(arguments[0]) &&
                IsValue(arguments[2]) && IsValue(arguments[3]) && IsNumber(arguments[4]);
       }},
      {"aten::group_norm",
       {0, 2, 3},
       [](auto& to, const auto& of, const Node& node) {
         const TermId normal =
             GroupNorm(to, of[0], node.arguments[1].constant.toInt(), number(node, 4));
         return to.Sum(to.Product(normal, ForChannels(to, of[1], of[0])),
                       ForChannels(to, of[2], of[0]));
       },
       ResultType::kWide,
       [](const Node& node) {
         return IsConstant(node.arguments[1]) && node.arguments[1].constant.isInt() &&
                IsValue(node.arguments[2]) && IsValue(node.arguments[3]) &&
                IsNumber(node.arguments[4]);
       }},
  };
  std::string_view name = NameOf(node);
  if (name.ends_with('_')) name.remove_suffix(1);
  const auto found = std::ranges::find(operations, name, &Operation::name);
  if (found == operations.end() || node.results.size() != 1 || node.results[0].is_list ||
      node.results[0].value < 0) {
    return nullptr;
  }
  if (found->takes) return found->takes(node) ? &*found : nullptr;
  if (!IsValue(node.arguments[0])) return nullptr;
  const std::string& overload = node.operation->schema().overload_name();
  if (!overload.empty() && overload != "Tensor" && overload != "Scalar") return nullptr;
  if (overload == "Scalar" && IsValue(node.arguments[1])) return nullptr;
  for (size_t i = 0; i < node.arguments.size(); ++i) {
    const Argument& argument = node.arguments[i];
    const bool is_operand = std::ranges::find(found->operands, i) != found->operands.end();
    if (!IsNumber(argument) && !(is_operand && IsValue(argument))) return nullptr;
  }
  return &*found;
}

// Returns whether the operation only moves values. Such operations belong to a group that reads their results.
bool IsMove(const Node& node) {
  return NameOf(node) == "aten::slice" || NameOf(node) == "aten::cat" ||
         NameOf(node) == "aten::pad";
}

bool IsInPlace(const Node& node) { return NameOf(node).ends_with('_'); }

// Returns the arguments that are operands, and the elements of those that are lists.
std::vector<Argument> OperandsOf(const Node& node) {
  std::vector<Argument> operands;
  for (const size_t place : OperationOf(node)->operands) {
    const Argument& argument = node.arguments[place];
    if (argument.kind == Argument::Kind::kList) {
      operands.insert(operands.end(), argument.elements.begin(), argument.elements.end());
    } else {
      operands.push_back(argument);
    }
  }
  return operands;
}

// Returns whether all values that the operation takes are tensors, as far as is known before the graph runs.
bool TakesTensors(const Rewriter& rewriter, const Node& node) {
  return std::ranges::all_of(ValuesOf(node), [&](int64_t value) {
    const int64_t maker = rewriter.MakerOf(value);
    return maker < 0 || !rewriter.At(maker).IsNumber();
  });
}

bool CanTakePart(const Rewriter& rewriter, int64_t node) {
  return !rewriter.IsGone(node) && OperationOf(rewriter.At(node)) != nullptr &&
         TakesTensors(rewriter, rewriter.At(node));
}

// Returns whether only nodes of the group use the result of `maker`, which runs in the same modes as the group.
bool IsOnlyUsedBy(const Rewriter& rewriter, const std::vector<int64_t>& group, int64_t maker) {
  const Node& node = rewriter.At(maker);
  const Node& last = rewriter.At(group.front());
  const int64_t value = node.results[0].value;
  return value != rewriter.program().output && node.grad == last.grad &&
         node.autocast == last.autocast &&
         std::ranges::all_of(rewriter.UsersOf(value), [&](int64_t user) {
           return std::ranges::find(group, user) != group.end();
         });
}

// Returns whether the operation draws random numbers.
bool DrawsNumbers(const Node& node) {
  constexpr size_t kDropout = 4;  // of aten::scaled_dot_product_attention
  const std::string_view name = NameOf(node);
  if (name == "aten::dropout") return Draws(node);
  if (name == "aten::scaled_dot_product_attention") return NumberOf(node.arguments[kDropout]) != 0;
  constexpr std::array<std::string_view, 5> kWords = {"drop", "rand", "bernoulli", "rrelu",
                                                      "multinomial"};
  return std::ranges::any_of(
      kWords, [&](std::string_view word) { return name.find(word) != std::string_view::npos; });
}

// Returns whether `maker` may run at the place of `node`: whether no other operation than those of the group draws numbers
// between the two, if `maker` draws. On a CPU the draws then have PyTorch's order.
bool KeepsOrderOfDraws(const Rewriter& rewriter, const std::vector<int64_t>& group, int64_t maker,
                       int64_t node) {
  if (!Draws(rewriter.At(maker))) return true;
  for (int64_t i = maker + 1; i < node; ++i) {
    const bool is_other = std::ranges::find(group, i) == group.end();
    if (is_other && DrawsNumbers(rewriter.At(i))) return false;
  }
  return true;
}

// Argument number of the bias of a convolution and of a linear layer.
constexpr size_t kBias = 2;

// Returns whether the node is a convolution or linear layer to whose result its bias is added afterwards. Depthwise
// convolutions and linear layers of rows add it themselves.
bool HasOwnBias(const Rewriter& rewriter, int64_t node) {
  constexpr size_t kGroups = 6;
  const Node& of = rewriter.At(node);
  if (rewriter.IsGone(node) || !of.operation) return false;
  const bool is_such = NameOf(of) == "aten::conv2d" ? NumberOf(of.arguments[kGroups]) == 1
                                                    : ReadsColumns(rewriter, node);
  return is_such && of.operation->schema().overload_name().empty() &&
         IsValue(of.arguments[kBias]) && rewriter.IsParameter(of.arguments[kBias].value);
}

// Returns whether these layers, on the tensor's device, leave their biases to the groups. On a CPU oneDNN adds them at no
// cost.
bool LeavesBiasesOut(const at::Tensor& tensor) { return IsOnGpu(tensor.device()); }

// Makes the layer return its result without the bias, where LeavesBiasesOut().
void LeaveOutBias(Rewriter& rewriter, const LayersBias& bias) {
  const Node& of = rewriter.At(bias.node);
  const auto operation = [schema = *of.operation, call = of.call](
                             const std::vector<IValue>& arguments) -> std::vector<at::Tensor> {
    std::vector<IValue> stack = arguments;
    if (LeavesBiasesOut(stack[0].toTensor())) stack[kBias] = IValue();
    call(schema, stack);
    return {stack.at(0).toTensor()};
  };
  rewriter.Put({bias.node}, operation, of.arguments, {bias.result}, bias.node);
}

// Returns a function that computes the nodes one after the other with LibTorch's operations.
ops::GeneratedTwin TwinOf(const std::vector<Node>& nodes, const std::vector<int64_t>& inputs,
                          const std::vector<LayersBias>& biases) {
  int64_t values = 0;
  for (const int64_t input : inputs) values = std::max(values, input + 1);
  for (const Node& node : nodes) values = std::max(values, node.results[0].value + 1);
  return [nodes, inputs, biases, values](const std::vector<at::Tensor>& tensors) {
    Values known(values);
    for (size_t i = 0; i < inputs.size(); ++i) known[inputs[i]] = tensors[i];
    for (size_t i = 0; i < biases.size() && LeavesBiasesOut(tensors[0]); ++i) {
      const at::Tensor result = known[biases[i].result].toTensor();
      const at::Tensor bias = tensors[inputs.size() + i].to(result.scalar_type());
      known[biases[i].result] = result + (biases[i].is_channels ? bias.view({1, -1, 1, 1}) : bias);
    }
    for (const Node& node : nodes) {
      std::vector<IValue> stack;
      for (const Argument& argument : node.arguments) {
        stack.push_back(Made(argument, known, tensors[0].device()));
      }
      node.call(*node.operation, stack);
      known[node.results[0].value] = stack.at(0);
    }
    return known[nodes.back().results[0].value].toTensor();
  };
}

// Returns a function that adds the terms of the nodes. The first inputs are those of `inputs`, the next are `biases`, and
// the last is the key if a node draws.
ops::BuildTerms BuildOf(const std::vector<Node>& nodes, const std::vector<int64_t>& inputs,
                        const std::vector<LayersBias>& biases, bool is_rounded,
                        bool is_contiguous) {
  return [nodes, inputs, biases, is_rounded, is_contiguous](
             TensorTerms& to, const std::vector<TermId>& terms,
             const std::vector<at::ScalarType>& types,
             at::ScalarType autocast) -> ops::GeneratedResult {
    std::map<int64_t, ops::GeneratedResult> known;
    for (size_t i = 0; i < inputs.size(); ++i) known[inputs[i]] = {terms[i], types[i]};
    for (size_t i = 0; i < biases.size(); ++i) {
      ops::GeneratedResult& result = known.at(biases[i].result);
      const TermId bias = terms[inputs.size() + i];
      result.term =
          to.Sum(result.term, biases[i].is_channels ? ForChannels(to, bias, result.term) : bias);
    }
    ops::GeneratedResult result{};
    for (const Node& node : nodes) {
      const Operation& operation = *OperationOf(node);
      Terms operands;
      std::optional<at::ScalarType> type;
      for (const Argument& argument : OperandsOf(node)) {
        if (!IsValue(argument)) {
          operands.push_back(to.Constant(*NumberOf(argument)));
          continue;
        }
        const ops::GeneratedResult& operand = known.at(argument.value);
        const bool is_condition = operation.condition == operands.size();
        if (is_condition != (operand.type == at::kBool)) return {operand.term, at::kBool};
        operands.push_back(operand.term);
        if (is_condition) continue;
        const bool decides = !type || (!IsInPlace(node) && operation.type != ResultType::kFirst);
        if (decides) type = type ? at::promoteTypes(*type, operand.type) : operand.type;
      }
      if (Draws(node)) operands.push_back(terms.back());
      const bool is_widened =
          operation.type == ResultType::kWide && autocast != at::kFloat && !IsInPlace(node);
      result = {.term = operation.term(to, operands, node),
                .type = is_widened ? at::kFloat : *type,
                .is_contiguous = is_contiguous};
      if (result.term < 0) return {operands[0], at::kBool};
      known[node.results[0].value] = result;
    }
    if (is_rounded && autocast != at::kFloat) result.type = autocast;
    return result;
  };
}

// Returns whether a group of this one node pays. One operation is one kernel of LibTorch, too, except a group norm, and a
// layer norm, which begins and ends with conversions under autocast. LibTorch's kernels for images and for a softmax over
// another dimension than the last are slow, and the result of a choice, such as attention's mask, may be rounded and made
// contiguous afterwards.
bool PaysAlone(const Node& node) {
  constexpr std::array<std::string_view, 5> kAlone = {"aten::group_norm", "aten::layer_norm",
                                                      "aten::avg_pool2d",
                                                      "aten::upsample_nearest2d", "aten::where"};
  return std::ranges::find(kAlone, NameOf(node)) != kAlone.end() ||
         (NameOf(node) == "aten::softmax" && NumberOf(node.arguments[1]) != -1);
}

bool IsBatchedProduct(const Node& node) {
  return NameOf(node) == "aten::matmul" || NameOf(node) == "aten::bmm";
}

// Returns whether the node makes its argument `value` contiguous, as LibTorch's batched products do unless it is the
// transpose of a contiguous tensor, or reads it as attention's mask.
bool WantsContiguous(const Rewriter& rewriter, const Node& node, int64_t value) {
  constexpr size_t kMask = 3;
  const std::vector<Argument>& arguments = node.arguments;
  if (IsBatchedProduct(node)) return true;
  if (Exchanges(node, -2, -1) && node.results[0].value >= 0) {
    return std::ranges::all_of(rewriter.UsersOf(node.results[0].value),
                               [&](int64_t user) { return IsBatchedProduct(rewriter.At(user)); });
  }
  if (NameOf(node) == "aten::contiguous") return IsConstant(arguments[1], 0);
  return NameOf(node) == "aten::scaled_dot_product_attention" && arguments[kMask].value == value &&
         std::ranges::none_of(arguments.begin(), arguments.begin() + kMask,
                              [&](const Argument& of) { return of.value == value; });
}

}  // namespace

WantedForms WantedFormsOf(const Rewriter& rewriter) {
  WantedForms forms;
  for (int64_t i = 0; i < rewriter.size(); ++i) {
    const Node& node = rewriter.At(i);
    if (node.results.size() != 1 || node.results[0].is_list || node.results[0].value < 0) continue;
    const int64_t value = node.results[0].value;
    const std::vector<int64_t>& users = rewriter.UsersOf(value);
    if (users.empty()) continue;
    if (rewriter.RoundingUsers(i).size() == users.size()) forms.rounded.insert(value);
    const bool is_contiguous = std::ranges::all_of(
        users, [&](int64_t user) { return WantsContiguous(rewriter, rewriter.At(user), value); });
    if (is_contiguous) forms.contiguous.insert(value);
  }
  return forms;
}

std::optional<GeneratedGroup> GeneratedGroupOf(const Rewriter& rewriter, int64_t node,
                                               const WantedForms& forms) {
  if (!CanTakePart(rewriter, node) || IsMove(rewriter.At(node))) return std::nullopt;
  GeneratedGroup group{.nodes = {node}, .inputs = {}, .build = {}, .twin = {}};
  const auto add_input = [](std::vector<int64_t>& inputs, int64_t value) {
    if (std::ranges::find(inputs, value) == inputs.end()) inputs.push_back(value);
  };
  for (const int64_t value : ValuesOf(rewriter.At(node))) add_input(group.inputs, value);
  // Adds to the group any node whose result only the group uses, as long as the number of inputs stays within the
  // limit.
  for (size_t i = 0; i < group.inputs.size();) {
    const int64_t maker = rewriter.MakerOf(group.inputs[i]);
    std::vector<int64_t> inputs = group.inputs;
    inputs.erase(inputs.begin() + static_cast<std::ptrdiff_t>(i));
    const bool is_own = maker >= 0 && CanTakePart(rewriter, maker) &&
                        IsOnlyUsedBy(rewriter, group.nodes, maker) &&
                        KeepsOrderOfDraws(rewriter, group.nodes, maker, node);
    if (is_own) {
      for (const int64_t more : ValuesOf(rewriter.At(maker))) add_input(inputs, more);
    }
    if (!is_own || group.nodes.size() == kMostNodes || inputs.size() > kMostInputs) {
      ++i;
      continue;
    }
    group.inputs = std::move(inputs);
    group.nodes.push_back(maker);
    i = 0;
  }
  std::ranges::sort(group.nodes);
  // Only the operation that writes to an intermediate result may read it, because others would read what was written.
  const bool writes_within = std::ranges::all_of(group.nodes, [&](int64_t member) {
    const Node& of = rewriter.At(member);
    if (!IsInPlace(of)) return true;
    const int64_t written = of.arguments[0].value;
    return std::ranges::find(group.inputs, written) == group.inputs.end() &&
           rewriter.UsersOf(written).size() == 1 &&
           NameOf(rewriter.At(rewriter.MakerOf(written))) != "aten::dropout";
  });
  // Backward reads the group's inputs again, so no operation may write to an input after the group's first node.
  const bool inputs_stay = std::ranges::none_of(group.inputs, [&](int64_t value) {
    return rewriter.IsWrittenAfter(value, group.nodes.front());
  });
  for (const int64_t input : group.inputs) {
    const int64_t maker = rewriter.MakerOf(input);
    if (maker < 0 || !HasOwnBias(rewriter, maker) || !IsOnlyUsedBy(rewriter, group.nodes, maker) ||
        rewriter.IsWritten(rewriter.At(maker).arguments[kBias].value)) {
      continue;
    }
    group.biases.push_back({.result = input,
                            .bias = rewriter.At(maker).arguments[kBias].value,
                            .node = maker,
                            .is_channels = NameOf(rewriter.At(maker)) == "aten::conv2d"});
  }
  const bool pays = group.nodes.size() + group.biases.size() > 1 || PaysAlone(rewriter.At(node));
  if (!pays || group.inputs.size() > kMostInputs || !writes_within || !inputs_stay) {
    return std::nullopt;
  }
  std::vector<Node> nodes;
  for (const int64_t member : group.nodes) nodes.push_back(rewriter.At(member));
  group.draws = std::ranges::any_of(nodes, Draws);
  group.twin = TwinOf(nodes, group.inputs, group.biases);
  const int64_t result = rewriter.At(node).results[0].value;
  group.build = BuildOf(nodes, group.inputs, group.biases, forms.rounded.contains(result),
                        forms.contiguous.contains(result));
  return group;
}

void FuseGenerated(Rewriter& rewriter, const WantedForms& forms) {
  // The loop goes backwards, so that a group contains all operations that lead to its last one.
  for (int64_t i = rewriter.size() - 1; i >= 0; --i) {
    if (rewriter.IsGone(i) || rewriter.At(i).results.size() != 1) continue;
    const int64_t result = rewriter.At(i).results[0].value;
    const std::optional<GeneratedGroup> group = GeneratedGroupOf(rewriter, i, forms);
    if (!group) continue;
    const auto function =
        std::make_shared<const ops::GeneratedFunction>(group->build, group->twin, group->draws);
    const auto operation =
        [function](const std::vector<IValue>& arguments) -> std::vector<at::Tensor> {
      std::vector<at::Tensor> inputs;
      for (const IValue& argument : arguments) inputs.push_back(argument.toTensor());
      return {ops::Generated(function, inputs)};
    };
    std::vector<Argument> arguments;
    for (const int64_t input : group->inputs) arguments.push_back(ValueArgument(input));
    for (const LayersBias& bias : group->biases) arguments.push_back(ValueArgument(bias.bias));
    if (!rewriter.Put(group->nodes, operation, arguments, {result}, i)) continue;
    for (const LayersBias& bias : group->biases) LeaveOutBias(rewriter, bias);
  }
}

}  // namespace lockstep::exported
