#include "trainer/models/imported/fuse_attention.h"

#include <ATen/ATen.h>

#include <vector>

#include "trainer/ops/attention/attention.h"

namespace lockstep::exported {
namespace {

using c10::IValue;

// The arguments of aten::scaled_dot_product_attention.
enum AttentionArgument : size_t { kQuery, kKey, kValue, kMask, kDropout, kCausal, kScale };

// Arguments: queries, keys and values in one tensor, their shape, and the result's.
FusedOperation Attention(double dropout, bool causal) {
  return [dropout, causal](const std::vector<IValue>& arguments) -> std::vector<at::Tensor> {
    constexpr size_t kHeads = 3;
    const std::vector<int64_t> shape = arguments[1].toIntVector();
    const at::Tensor parts = arguments[0].toTensor().reshape(shape);
    const at::Tensor qkv = parts.flatten(2);
    const int64_t heads = parts.size(kHeads);
    const at::Tensor y = causal ? ops::CausalSelfAttention(qkv, heads, dropout)
                                : ops::SelfAttention(qkv, heads, dropout);
    return {y.reshape(arguments[2].toIntVector())};
  };
}

}  // namespace

void FuseAttention(Rewriter& rewriter, int64_t node) {
  const Node& attention = rewriter.At(node);
  const std::vector<Argument>& own = attention.arguments;
  const bool is_plain = IsValue(own[kQuery]) && IsValue(own[kKey]) && IsValue(own[kValue]) &&
                        IsConstant(own[kMask], IValue()) && IsConstant(own[kDropout]) &&
                        own[kDropout].constant.isDouble() && IsConstant(own[kCausal]) &&
                        own[kCausal].constant.isBool() && IsConstant(own[kScale], IValue());
  if (!is_plain) return;

  // Backward: the three come of one unbind, which comes of one tensor.
  const int64_t unbind = rewriter.MakerOf(own[kQuery].value);
  if (unbind < 0 || NameOf(rewriter.At(unbind)) != "aten::unbind" ||
      !IsConstant(rewriter.At(unbind).arguments[1], 0)) {
    return;
  }
  const std::vector<int64_t> parts{own[kQuery].value, own[kKey].value, own[kValue].value};
  if (rewriter.At(unbind).results[0].elements != parts) return;
  for (const int64_t part : parts) {
    if (rewriter.OnlyUserOf(part, attention) != node) return;
  }
  const int64_t permute = rewriter.MakerOf(rewriter.At(unbind).arguments[0].value);
  if (permute < 0 || NameOf(rewriter.At(permute)) != "aten::permute" ||
      !AreIntegers(rewriter.At(permute).arguments[1], {2, 0, 3, 1, 4}) ||
      rewriter.OnlyUser(permute) != unbind) {
    return;
  }
  const int64_t reshape = rewriter.MakerOf(rewriter.At(permute).arguments[0].value);
  if (reshape < 0 || NameOf(rewriter.At(reshape)) != "aten::reshape" ||
      rewriter.OnlyUser(reshape) != permute) {
    return;
  }
  const auto shape = IntegersOf(rewriter.At(reshape).arguments[1]);
  if (shape.size() != 5 || shape[2] != 3) return;

  // Forward: the heads of a token lie side by side again.
  const int64_t transpose = rewriter.OnlyUser(node);
  if (transpose < 0 || NameOf(rewriter.At(transpose)) != "aten::transpose" ||
      !IsConstant(rewriter.At(transpose).arguments[1], 1) ||
      !IsConstant(rewriter.At(transpose).arguments[2], 2)) {
    return;
  }
  const int64_t result = rewriter.OnlyUser(transpose);
  if (result < 0 || NameOf(rewriter.At(result)) != "aten::reshape") return;
  rewriter.Put({reshape, permute, unbind, node, transpose, result},
               Attention(own[kDropout].constant.toDouble(), own[kCausal].constant.toBool()),
               {rewriter.At(reshape).arguments[0], rewriter.At(reshape).arguments[1],
                rewriter.At(result).arguments[1]},
               {rewriter.At(result).results[0].value}, node);
}

}  // namespace lockstep::exported
