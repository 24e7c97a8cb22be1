#include "models/imported/fuse_windows.h"

#include <ATen/ATen.h>
#include <ATen/InferSize.h>

#include <limits>
#include <optional>
#include <string_view>
#include <vector>

#include "ops/attention/windows.h"

namespace lockstep::exported {
namespace {

using c10::IValue;

// ---- The operation -------------------------------------------------------------------------------

// The number of pixels by which an image is rolled along its height and its width.
struct Shift {
  int64_t height, width;
};

enum class Rolls { kNever, kBefore, kAfter };

using Sizes = std::vector<int64_t>;

at::Tensor Rolled(const at::Tensor& image, const Shift& shift) {
  return at::roll(image, {shift.height, shift.width}, {1, 2});
}

// Computes the chain with LibTorch's operations.
at::Tensor LibTorchs(const at::Tensor& x, const Sizes& parts, const Sizes& result, Rolls rolls,
                     const Shift& shift) {
  const at::Tensor y = (rolls == Rolls::kBefore ? Rolled(x, shift) : x)
                           .reshape(parts)
                           .permute({0, 1, 3, 2, 4, 5})
                           .contiguous()
                           .view(result);
  return rolls == Rolls::kAfter ? Rolled(y, shift) : y;
}

// Computes the chain with the fused operations; returns an undefined tensor if they do not support the arguments.
// `parts` are the six sizes of the first view, and `result` is the shape of the result.
at::Tensor Fused(const at::Tensor& x, const Sizes& parts, const Sizes& result, Rolls rolls,
                 const Shift& shift) {
  if (!x.is_contiguous() || x.numel() == 0) return {};
  if (rolls == Rolls::kAfter) {
    // `parts` are [count, rows of windows, columns of windows, window height, window width, channels].
    const Sizes image{parts[0], parts[1] * parts[3], parts[2] * parts[4], parts[5]};
    if (image != result) return {};
    return ops::FromWindows(
        x.view({parts[0] * parts[1] * parts[2], parts[3] * parts[4], parts[5]}), image[1], image[2],
        {.height = parts[3], .width = parts[4], .down = shift.height, .right = shift.width});
  }
  // `parts` are [count, rows of windows, window height, columns of windows, window width, channels].
  const Sizes image{parts[0], parts[1] * parts[2], parts[3] * parts[4], parts[5]};
  ops::WindowCut cut{.height = parts[2], .width = parts[4]};
  if (rolls == Rolls::kBefore) {
    if (x.sizes() != image) return {};
    cut.down = -shift.height;
    cut.right = -shift.width;
  }
  return ops::ToWindows(x.view(image), cut).view(result);
}

// Returns the operation whose arguments are the input, the six sizes of the first view, and the shape of the result. In
// each of the two shapes, one size may be -1.
FusedOperation Windows(Rolls rolls, const Shift& shift) {
  return [rolls, shift](const std::vector<IValue>& arguments) -> std::vector<at::Tensor> {
    const at::Tensor x = arguments[0].toTensor();
    const Sizes parts = at::infer_size(arguments[1].toIntVector(), x.numel());
    const Sizes result = at::infer_size(arguments[2].toIntVector(), x.numel());
    const at::Tensor y = Fused(x, parts, result, rolls, shift);
    return {y.defined() ? y : LibTorchs(x, parts, result, rolls, shift)};
  };
}

// ---- The chain -----------------------------------------------------------------------------------

bool IsView(const Node& node) {
  const std::string_view name = NameOf(node);
  return (name == "aten::view" || name == "aten::reshape") && IsValue(node.arguments[0]) &&
         !IntegersOf(node.arguments[1]).empty();
}

bool IsRoll(const Node& node) {
  if (NameOf(node) != "aten::roll" || !IsValue(node.arguments[0])) return false;
  const auto shifts = IntegersOf(node.arguments[1]);
  return shifts.size() == 2 && shifts[0] && shifts[1] && AreIntegers(node.arguments[2], {1, 2});
}

Shift ShiftOf(const Node& roll) {
  const auto shifts = IntegersOf(roll.arguments[1]);
  return {.height = shifts[0].value(), .width = shifts[1].value()};
}

bool IsCopy(const Node& node) {
  const std::string_view name = NameOf(node);
  return (name == "aten::contiguous" && IsConstant(node.arguments[1], 0)) ||
         (name == "aten::clone" && IsConstant(node.arguments[1], 0));
}

// Returns whether a node returns all values of its input in the same shape.
bool GivesAll(const Node& node) {
  if (NameOf(node) == "aten::alias" || IsCopy(node)) return true;
  return NameOf(node) == "aten::slice" && IsConstant(node.arguments[2], 0) &&
         IsConstant(node.arguments[3], std::numeric_limits<int64_t>::max()) &&
         IsConstant(node.arguments[4], 1);
}

}  // namespace

void FuseWindows(Rewriter& rewriter, int64_t node) {
  if (!AreIntegers(rewriter.At(node).arguments[1], {0, 1, 3, 2, 4, 5})) return;
  const int64_t view = rewriter.OwnMakerOf(node);
  if (view < 0 || !IsView(rewriter.At(view)) ||
      IntegersOf(rewriter.At(view).arguments[1]).size() != 6) {
    return;
  }
  std::vector<int64_t> chain{view, node};
  Rolls rolls = Rolls::kNever;
  Shift shift{};
  const int64_t before = rewriter.OwnMakerOf(view);
  if (before >= 0 && IsRoll(rewriter.At(before))) {
    rolls = Rolls::kBefore;
    shift = ShiftOf(rewriter.At(before));
    chain.insert(chain.begin(), before);
  } else if (before >= 0 && IsView(rewriter.At(before))) {
    chain.insert(chain.begin(), before);
  }

  // Finds the end of the chain: the last view, or the roll after the last view.
  std::vector<int64_t> after;
  size_t taken = 0;
  const Argument* result = nullptr;
  for (int64_t next = rewriter.OnlyUser(node); next >= 0; next = rewriter.OnlyUser(next)) {
    const Node& follower = rewriter.At(next);
    const bool is_roll = IsRoll(follower) && rolls == Rolls::kNever && result != nullptr;
    if (!is_roll && !IsView(follower) && !GivesAll(follower)) break;
    after.push_back(next);
    if (is_roll) {
      rolls = Rolls::kAfter;
      shift = ShiftOf(follower);
    } else if (IsView(follower)) {
      result = &follower.arguments[1];
    }
    if (result != nullptr) taken = after.size();
    if (is_roll) break;
  }
  if (result == nullptr) return;
  chain.insert(chain.end(), after.begin(), after.begin() + static_cast<int64_t>(taken));
  const std::vector<Argument> arguments{rewriter.At(chain.front()).arguments[0],
                                        rewriter.At(view).arguments[1], *result};
  const int64_t value = rewriter.At(chain.back()).results[0].value;
  if (rewriter.IsWritten(value) || rewriter.IsWritten(arguments[0].value)) return;
  rewriter.Put(chain, Windows(rolls, shift), arguments, {value}, node);
}

}  // namespace lockstep::exported
