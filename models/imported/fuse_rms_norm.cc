#include "models/imported/fuse_rms_norm.h"

#include <ATen/ATen.h>

#include <limits>
#include <optional>
#include <vector>

#include "base/tensor/autocast.h"
#include "models/imported/rows_norm.h"

namespace lockstep::exported {
namespace {

using c10::IValue;

// An RMSNorm that was found in the program.
struct RmsNorm {
  std::vector<int64_t> nodes;
  int64_t x = -1;  // the value that is normalised
  Argument weight;
  double epsilon = 0;
  int64_t last = -1;  // the node that gives the result
  // If `widens` is set, a 16-bit x gives a float32 result, with or without autocast. If only `widens_under_autocast` is
  // set, a 16-bit x gives a float32 result only under autocast. If neither is set, the result has x's type.
  bool widens = false;
  bool widens_under_autocast = true;
};

bool IsToFloat(const Node& node) {
  return NameOf(node) == "aten::to" && IsValue(node.arguments[0]) &&
         node.operation->schema().overload_name() == "dtype" &&
         IsConstant(node.arguments[1], static_cast<int64_t>(at::kFloat)) &&
         IsConstant(node.arguments[3], false);
}

// Returns the other factor of a product of `value` and another value; nothing if the node is not such a product.
std::optional<Argument> OtherFactor(const Node& node, int64_t value) {
  if (NameOf(node) != "aten::mul" || node.operation->schema().overload_name() != "Tensor" ||
      !IsValue(node.arguments[0]) || !IsValue(node.arguments[1])) {
    return std::nullopt;
  }
  const bool is_first = node.arguments[0].value == value;
  if (!is_first && node.arguments[1].value != value) return std::nullopt;
  return node.arguments[is_first ? 1 : 0];
}

// Returns whether the node squares its first argument, with pow or square.
bool IsSquare(const Node& node) {
  if (node.results.size() != 1 || !IsValue(node.arguments[0])) return false;
  if (NameOf(node) == "aten::square") return true;
  return NameOf(node) == "aten::pow" && NumberOf(node.arguments[1]) == 2;
}

std::optional<RmsNorm> WrittenOut(const Rewriter& rewriter, int64_t rsqrt) {
  RmsNorm norm;
  const int64_t add = rewriter.OwnMakerOf(rsqrt, 0, "aten::add");
  if (add < 0 || !NumberOf(rewriter.At(add).arguments[1]) ||
      NumberOf(rewriter.At(add).arguments[2]) != 1) {
    return std::nullopt;
  }
  norm.epsilon = *NumberOf(rewriter.At(add).arguments[1]);
  const int64_t mean = rewriter.OwnMakerOf(add, 0, "aten::mean");
  if (mean < 0 || rewriter.At(mean).arguments.size() != 4 ||
      !AreIntegers(rewriter.At(mean).arguments[1], {-1}) ||
      !IsConstant(rewriter.At(mean).arguments[2], true) ||
      !IsConstant(rewriter.At(mean).arguments[3], IValue())) {
    return std::nullopt;
  }
  const int64_t square = rewriter.OwnMakerOf(mean);
  if (square < 0 || !IsSquare(rewriter.At(square))) return std::nullopt;
  norm.nodes = {square, mean, add, rsqrt};
  const int64_t squared = rewriter.At(square).arguments[0].value;

  const int64_t scaled = rewriter.OnlyUser(rsqrt);
  if (scaled < 0) return std::nullopt;
  const auto x = OtherFactor(rewriter.At(scaled), rewriter.At(rsqrt).results[0].value);
  if (!x) return std::nullopt;
  norm.x = x->value;
  if (squared != norm.x) {
    const int64_t widened = rewriter.OwnMakerOf(square);
    if (widened < 0 || !IsToFloat(rewriter.At(widened)) ||
        rewriter.At(widened).arguments[0].value != norm.x) {
      return std::nullopt;
    }
    norm.nodes.insert(norm.nodes.begin(), widened);
    norm.widens = true;
  }
  norm.nodes.push_back(scaled);
  int64_t normal = scaled;
  int64_t next = rewriter.OnlyUser(scaled);
  if (next >= 0 && IsToFloat(rewriter.At(next))) {
    norm.nodes.push_back(next);
    normal = next;
    next = rewriter.OnlyUser(next);
  }
  if (next < 0) return std::nullopt;
  const auto weight = OtherFactor(rewriter.At(next), rewriter.At(normal).results[0].value);
  if (!weight) return std::nullopt;
  norm.weight = *weight;
  norm.nodes.push_back(next);
  norm.last = next;
  return norm;
}

// Returns the norm that `node` computes by calling aten::rms_norm, as torch.nn.RMSNorm does; nothing if the arguments
// of the call do not allow fusion.
std::optional<RmsNorm> Called(const Rewriter& rewriter, int64_t node) {
  const std::vector<Argument>& arguments = rewriter.At(node).arguments;
  if (IntegersOf(arguments[1]).size() != 1 || !IsValue(arguments[0]) || !IsValue(arguments[2]) ||
      !IsConstant(arguments[3])) {
    return std::nullopt;
  }
  constexpr double kUsual = std::numeric_limits<float>::epsilon();
  return RmsNorm{.nodes = {node},
                 .x = arguments[0].value,
                 .weight = arguments[2],
                 .epsilon = NumberOf(arguments[3]).value_or(kUsual),
                 .last = node,
                 .widens_under_autocast = false};
}

bool IsWide(const at::Tensor& tensor) {
  return tensor.scalar_type() != at::kHalf && tensor.scalar_type() != at::kBFloat16;
}

RowsNormResult Norm(const at::Tensor& x, const at::Tensor& branch, const at::Tensor& weight,
                    double epsilon, const RowsNormUses& uses) {
  if (weight.dim() == 1 && weight.size(0) == x.size(-1)) {
    return RowsNorm(x, branch, {.weight = weight, .bias = {}, .epsilon = epsilon}, uses);
  }
  const at::Tensor sum = branch.defined() ? x + branch : x;
  const at::Tensor y =
      weight * (sum * at::rsqrt(sum.square().mean(-1, /*keepdim=*/true) + epsilon));
  return {.sum = sum, .wide = y, .rounded = y};
}

// Returns the norm of x, without adding a branch. x may have 16 bits.
RowsNormResult NormOf(const at::Tensor& x, const at::Tensor& weight, const RmsNorm& form,
                      const RowsNormUses& uses) {
  if (IsWide(x)) return Norm(x, {}, weight, form.epsilon, uses);
  const bool is_cast = AutocastState::Now(x.device().type()).enabled;
  const at::Tensor wide = x.to(at::kFloat);
  if (form.widens || (is_cast && form.widens_under_autocast)) {
    return Norm(wide, {}, weight, form.epsilon, uses);
  }
  const RowsNormResult norm =
      Norm(wide, {}, weight, form.epsilon, {.rounded = false, .wide = true});
  const at::Tensor y = norm.wide.to(x.scalar_type());
  return {.sum = x, .wide = y, .rounded = y};
}

// Returns the operation whose arguments are x and the weight. Its results are the norm, and the norm rounded to 16
// bits.
FusedOperation NormOfRows(const RmsNorm& form, const RowsNormUses& uses) {
  return [form, uses](const std::vector<IValue>& arguments) -> std::vector<at::Tensor> {
    const RowsNormResult norm =
        NormOf(arguments[0].toTensor(), arguments[1].toTensor(), form, uses);
    return {norm.wide, norm.rounded};
  };
}

// Returns the operation whose arguments are the two addends and the weight. Its results are the sum, the sum that the
// norm reads (converted to float32 if `widens_sum`), the norm, and the norm rounded to 16 bits.
FusedOperation SumAndNorm(const RmsNorm& form, bool widens_sum, const RowsNormUses& uses) {
  return [form, widens_sum, uses](const std::vector<IValue>& arguments) -> std::vector<at::Tensor> {
    const at::Tensor x = arguments[0].toTensor();
    const at::Tensor branch = arguments[1].toTensor();
    const at::Tensor weight = arguments[2].toTensor();
    if (IsWide(x) || IsWide(branch)) {
      const RowsNormResult norm = Norm(x, branch, weight, form.epsilon, uses);
      return {norm.sum, norm.sum, norm.wide, norm.rounded};
    }
    const at::Tensor sum = x + branch;
    const at::Tensor taken = widens_sum ? sum.to(at::kFloat) : sum;
    const RowsNormResult norm = NormOf(taken, weight, form, uses);
    return {sum, taken, norm.wide, norm.rounded};
  };
}

}  // namespace

void FuseRmsNorm(Rewriter& rewriter, int64_t node) {
  const bool is_called = NameOf(rewriter.At(node)) == "aten::rms_norm";
  const std::optional<RmsNorm> found =
      is_called ? Called(rewriter, node) : WrittenOut(rewriter, node);
  if (!found) return;
  const RmsNorm& norm = *found;
  const int64_t y = rewriter.At(norm.last).results[0].value;
  if (y < 0 || rewriter.IsWritten(y)) return;
  const std::vector<int64_t> rounding = rewriter.RoundingUsers(norm.last);
  const RowsNormUses uses = UsesOf(rewriter, norm.last, rounding);
  const int64_t rounded = rewriter.NewValue(y);
  rewriter.Replace(y, rounded, rounding);

  // Finds the sum before the norm, and the conversion to float32 between them.
  const auto in_front = [&](int64_t maker) {
    return maker >= 0 && rewriter.At(maker).operation &&
           rewriter.At(maker).grad == rewriter.At(node).grad &&
           rewriter.At(maker).autocast == rewriter.At(node).autocast;
  };
  std::vector<int64_t> chain = norm.nodes;
  int64_t sum_value = norm.x;
  int64_t maker = rewriter.MakerOf(norm.x);
  const bool widens = in_front(maker) && IsToFloat(rewriter.At(maker));
  if (widens) {
    chain.insert(chain.begin(), maker);
    sum_value = rewriter.At(maker).arguments[0].value;
    maker = rewriter.MakerOf(sum_value);
  }
  if (in_front(maker) && IsSum(rewriter.At(maker)) && !rewriter.IsWritten(sum_value)) {
    chain.insert(chain.begin(), maker);
    const std::vector<Argument>& addends = rewriter.At(maker).arguments;
    const std::vector<int64_t> results = {sum_value, widens ? norm.x : -1, y, rounded};
    if (rewriter.Put(chain, SumAndNorm(norm, widens, uses), {addends[0], addends[1], norm.weight},
                     results, node)) {
      return;
    }
  }
  if (!rewriter.Put(norm.nodes, NormOfRows(norm, uses), {ValueArgument(norm.x), norm.weight},
                    {y, rounded}, node)) {
    rewriter.Replace(rounded, y, rounding);
  }
}

}  // namespace lockstep::exported
