#include "models/imported/fuse_grouped_attention.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "models/imported/attention_arguments.h"
#include "ops/attention/grouped_attention.h"

namespace lockstep::exported {
namespace {

using c10::IValue;

// The further arguments of the fused operation: the shapes to which keys and then values are expanded and reshaped.
enum RepeatArgument : size_t {
  kKeysExpanded = kShares,
  kKeysReshaped,
  kValuesExpanded,
  kValuesReshaped
};

// The shapes to which keys or values are expanded and then reshaped.
struct RepeatShapes {
  std::vector<int64_t> expanded, reshaped;

  at::Tensor Of(const at::Tensor& x) const {
    return x.unsqueeze(2).expand(expanded).reshape(reshaped);
  }

  // Returns whether Of() only repeats each of the heads of x, so that there are `heads`.
  bool OnlyRepeatHeads(const at::Tensor& x, int64_t heads) const {
    if (x.dim() != 4 || x.size(1) == 0 || heads % x.size(1) != 0) return false;
    const auto are = [](const std::vector<int64_t>& given, const std::vector<int64_t>& wanted) {
      return std::ranges::equal(
          given, wanted, [](int64_t size, int64_t exact) { return size == exact || size == -1; });
    };
    return expanded.size() == 5 && expanded[2] == heads / x.size(1) &&
           are(expanded, {x.size(0), x.size(1), heads / x.size(1), x.size(2), x.size(3)}) &&
           are(reshaped, {x.size(0), heads, x.size(2), x.size(3)});
  }
};

FusedOperation Attention(bool repeats) {
  return [repeats](const std::vector<IValue>& arguments) -> std::vector<at::Tensor> {
    const at::Tensor query = arguments[kQuery].toTensor();
    at::Tensor key = arguments[kKey].toTensor(), value = arguments[kValue].toTensor();
    if (repeats) {
      const auto shapes = [&](size_t expanded, size_t reshaped) {
        return RepeatShapes{.expanded = arguments[expanded].toIntVector(),
                            .reshaped = arguments[reshaped].toIntVector()};
      };
      const RepeatShapes of_key = shapes(kKeysExpanded, kKeysReshaped);
      const RepeatShapes of_value = shapes(kValuesExpanded, kValuesReshaped);
      const int64_t heads = query.dim() == 4 ? query.size(1) : 0;
      const bool shares = heads > 0 && key.size(1) == value.size(1) &&
                          of_key.OnlyRepeatHeads(key, heads) &&
                          of_value.OnlyRepeatHeads(value, heads);
      if (!shares) {
        key = of_key.Of(key);
        value = of_value.Of(value);
      }
    }
    ops::GroupedAttentionOptions options{.dropout = arguments[kDropout].toDouble(),
                                         .causal = arguments[kCausal].toBool()};
    if (arguments[kMask].isTensor()) options.mask = arguments[kMask].toTensor();
    if (!arguments[kScale].isNone()) options.scale = arguments[kScale].toDouble();
    return {ops::GroupedAttention(query, key, value, options)};
  };
}

// The operations that repeat the heads of keys or of values, and their arguments.
struct Repeat {
  std::vector<int64_t> nodes;
  Argument input, expanded, reshaped;
};

std::optional<Repeat> FindRepeat(const Rewriter& rewriter, int64_t attention, size_t argument) {
  const int64_t reshape = rewriter.OwnMakerOf(attention, argument, "aten::reshape");
  const int64_t expand = reshape < 0 ? -1 : rewriter.OwnMakerOf(reshape, 0, "aten::expand");
  const int64_t unsqueeze = expand < 0 ? -1 : rewriter.OwnMakerOf(expand, 0, "aten::unsqueeze");
  if (unsqueeze < 0 || !IsConstant(rewriter.At(unsqueeze).arguments[1], 2)) return std::nullopt;
  return Repeat{.nodes = {unsqueeze, expand, reshape},
                .input = rewriter.At(unsqueeze).arguments[0],
                .expanded = rewriter.At(expand).arguments[1],
                .reshaped = rewriter.At(reshape).arguments[1]};
}

}  // namespace

void FuseGroupedAttention(Rewriter& rewriter, int64_t node) {
  const std::vector<Argument>& own = rewriter.At(node).arguments;
  if (!AreOptionsKnown(own) || !IsConstant(own[kShares], false)) return;
  std::vector<int64_t> chain;
  std::vector<Argument> arguments(own.begin(), own.begin() + kShares);
  const auto keys = FindRepeat(rewriter, node, kKey);
  const auto values = FindRepeat(rewriter, node, kValue);
  const bool repeats = keys && values;
  if (repeats) {
    for (const Repeat* repeat : {&*keys, &*values}) {
      chain.insert(chain.end(), repeat->nodes.begin(), repeat->nodes.end());
      arguments.push_back(repeat->expanded);
      arguments.push_back(repeat->reshaped);
    }
    arguments[kKey] = keys->input;
    arguments[kValue] = values->input;
    std::ranges::sort(chain);
  }
  chain.push_back(node);
  rewriter.Put(chain, Attention(repeats), arguments, {rewriter.At(node).results[0].value}, node);
}

}  // namespace lockstep::exported
