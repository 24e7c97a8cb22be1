#include "models/imported/shorten_cat.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::exported {
namespace {

// The arguments of aten::cat.
enum CatArgument : size_t { kTensors, kDim };

// Returns whether the value is a constant of shape [0], or a copy of one.
bool IsEmpty(const Rewriter& rewriter, int64_t value) {
  constexpr std::array<std::string_view, 4> kCopies = {"aten::lift_fresh_copy", "aten::detach_",
                                                       "aten::detach", "aten::clone"};
  for (int64_t maker = rewriter.MakerOf(value); maker >= 0; maker = rewriter.MakerOf(value)) {
    const Node& node = rewriter.At(maker);
    if (std::ranges::find(kCopies, NameOf(node)) == kCopies.end()) return false;
    value = node.arguments[0].value;
  }
  return rewriter.program().empty_constants.contains(value);
}

// Leaves the node out if only one of its tensors is not empty. Returns whether it did so.
bool LeaveOut(Rewriter& rewriter, int64_t node) {
  const int64_t result = rewriter.At(node).results[0].value;
  std::vector<int64_t> kept = ValuesOf(rewriter.At(node).arguments[kTensors]);
  const size_t before = kept.size();
  std::erase_if(kept, [&](int64_t value) { return IsEmpty(rewriter, value); });
  const size_t users = rewriter.UsersOf(result).size();
  if (kept.size() != 1 || before == 1 || users == 0 ||
      rewriter.RoundingUsers(node).size() != users || rewriter.IsWritten(kept[0]) ||
      rewriter.IsWritten(result)) {
    return false;
  }
  rewriter.LeaveOut(node, kept[0]);
  return true;
}

// Returns the number of tensors of `node` that `earlier` already concatenates; 0 if the first tensors of `node` are not
// those of `earlier`.
size_t SharedWith(const Rewriter& rewriter, int64_t node, int64_t earlier) {
  const Node &of = rewriter.At(node), &other = rewriter.At(earlier);
  if (rewriter.IsGone(earlier) || earlier >= node || NameOf(other) != "aten::cat" ||
      other.grad != of.grad || other.autocast != of.autocast || other.results[0].value < 0 ||
      !IsConstant(of.arguments[kDim]) ||
      !IsConstant(other.arguments[kDim], of.arguments[kDim].constant)) {
    return 0;
  }
  const std::vector<int64_t> values = ValuesOf(of.arguments[kTensors]);
  const std::vector<int64_t> first = ValuesOf(other.arguments[kTensors]);
  const bool is_first = first.size() > 1 && first.size() < values.size() &&
                        std::equal(first.begin(), first.end(), values.begin());
  return is_first ? first.size() : 0;
}

// Makes the node read the longest concatenation that begins with its first tensor, in the place of the tensors that it
// consists of. Returns whether there is one.
bool ReadEarlier(Rewriter& rewriter, int64_t node) {
  const std::vector<int64_t> values = ValuesOf(rewriter.At(node).arguments[kTensors]);
  if (values.empty()) return false;
  int64_t longest = -1;
  size_t most = 0;
  for (const int64_t user : rewriter.UsersOf(values[0])) {
    const size_t shared = SharedWith(rewriter, node, user);
    if (shared > most) {
      longest = user;
      most = shared;
    }
  }
  if (longest < 0) return false;
  const int64_t joined = rewriter.At(longest).results[0].value;
  const auto is_written = [&](int64_t value) { return rewriter.IsWritten(value); };
  if (is_written(joined) || std::ranges::any_of(values, is_written)) return false;
  std::vector<Argument> arguments = rewriter.At(node).arguments;
  std::vector<Argument>& elements = arguments[kTensors].elements;
  elements.erase(elements.begin(), elements.begin() + static_cast<std::ptrdiff_t>(most));
  elements.insert(elements.begin(), ValueArgument(joined));
  rewriter.SetArguments(node, std::move(arguments));
  return true;
}

}  // namespace

void ShortenCat(Rewriter& rewriter, int64_t node) {
  const Node& cat = rewriter.At(node);
  const Argument& tensors = cat.arguments[kTensors];
  const bool is_plain = cat.results[0].value >= 0 && tensors.kind == Argument::Kind::kList &&
                        std::ranges::all_of(tensors.elements, [](const Argument& element) {
                          return IsValue(element);
                        });
  if (!is_plain || LeaveOut(rewriter, node)) return;
  // The tensors that the node reads then may be the beginning of a longer concatenation.
  while (ReadEarlier(rewriter, node)) {
  }
}

}  // namespace lockstep::exported
