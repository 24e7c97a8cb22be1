#include "models/imported/fuse_attention.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "models/imported/attention_arguments.h"
#include "models/imported/node_chain.h"
#include "ops/attention/attention.h"
#include "ops/attention/unit_queries.h"
#include "ops/attention/window_attention.h"

namespace lockstep::exported {
namespace {

using c10::IValue;

// ---- The operations ------------------------------------------------------------------------------

// Returns the operation for attention without a mask. Its arguments are a tensor with queries, keys and values, the
// shape to which this tensor is reshaped to separate them, and the shape of the result.
FusedOperation Attention(double dropout, bool causal) {
  return [dropout, causal](const std::vector<IValue>& arguments) -> std::vector<at::Tensor> {
    constexpr size_t kHeads = 3;
    const std::vector<int64_t> shape = arguments[1].toIntVector();
    const at::Tensor parts = arguments[0].toTensor().reshape(shape);
    const at::Tensor qkv = parts.flatten(2);
    const int64_t heads = parts.size(kHeads);
    const at::Tensor y = ops::SelfAttention(qkv, heads, {.dropout = dropout, .causal = causal});
    return {y.reshape(arguments[2].toIntVector())};
  };
}

// The arguments of an attention that adds a bias to its scores. The arguments after kBias are present only if a second
// mask is added, which fuse_attention.h calls `hiding`. For Form::kAttention the two shapes are those to which `hiding`
// is expanded and then reshaped; for Form::kScores they are the shapes of the scores during and after the addition of
// `hiding`.
enum WindowArgument : size_t { kInput, kShape, kResult, kBias, kHiding, kFirstShape, kSecondShape };

// The forms of attention in a graph: kScores computes the scores explicitly, and kAttention calls
// scaled_dot_product_attention.
enum class Form { kScores, kAttention };

// Returns the tensor that the attention adds to its scores: the bias, or, if there is a `hiding`, the sum of the bias
// and `hiding`.
at::Tensor SumOf(const std::vector<IValue>& arguments) {
  at::Tensor bias = arguments[kBias].toTensor();
  if (arguments.size() <= kHiding) return bias;
  return bias + arguments[kHiding]
                    .toTensor()
                    .expand(arguments[kFirstShape].toIntVector())
                    .reshape(arguments[kSecondShape].toIntVector());
}

// Computes Form::kScores with LibTorch's operations. product(queries, keys) returns the scores before the bias is added.
// Returns [windows, tokens, heads, size].
template <typename Product>
at::Tensor FromScores(const at::Tensor& parts, const std::vector<IValue>& arguments,
                      const Product& product) {
  const std::vector<at::Tensor> qkv = parts.permute({2, 0, 3, 1, 4}).unbind(0);
  at::Tensor scores = product(qkv[0], qkv[1]) + arguments[kBias].toTensor();
  if (arguments.size() > kHiding) {
    scores = (scores.reshape(arguments[kFirstShape].toIntVector()) + arguments[kHiding].toTensor())
                 .reshape(arguments[kSecondShape].toIntVector());
  }
  return at::matmul(scores.softmax(-1), qkv[2]).transpose(1, 2);
}

// Returns whether `shape`, the argument kFirstShape, is [windows / kinds, kinds, heads, tokens, tokens], where `kinds`
// is the number of masks in `hiding`. A size of -1 keeps the tensor's size in expand(), and is the remaining size in
// reshape().
bool IsByKind(const std::vector<int64_t>& shape, const at::Tensor& hiding, int64_t windows,
              int64_t heads, Form form) {
  const int64_t kinds = hiding.size(1);
  const std::vector<int64_t> wanted{windows / kinds, kinds, heads, hiding.size(3), hiding.size(4)};
  if (shape.size() != wanted.size()) return false;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const bool is_as_before = form == Form::kAttention && i != 2 && hiding.size(i) == wanted[i];
    const bool is_the_rest = form == Form::kScores && i == 0;
    if (shape[i] != wanted[i] && !(shape[i] == -1 && (is_as_before || is_the_rest))) return false;
  }
  return true;
}

// Returns `hiding` with the shape that ops::WindowAttention() takes, [kinds, tokens, tokens]; undefined if there is no
// `hiding`.
at::Tensor MaskOf(const std::vector<IValue>& arguments) {
  if (arguments.size() <= kHiding) return {};
  return arguments[kHiding].toTensor().squeeze(2).squeeze(0);
}

// Returns whether ops::WindowAttention() can compute this attention. On CPUs ops::WindowAttention() takes heads and
// windows of any size.
bool IsOwn(const at::Tensor& qkv, int64_t heads, const std::vector<IValue>& arguments, Form form) {
  const int64_t windows = qkv.size(0);
  const int64_t tokens = qkv.size(1);
  const at::Tensor bias = arguments[kBias].toTensor();
  const bool has_16_bits = qkv.scalar_type() == at::kHalf || qkv.scalar_type() == at::kBFloat16;
  if (!has_16_bits || bias.scalar_type() != at::kFloat || qkv.numel() == 0 ||
      bias.sizes() != at::IntArrayRef({1, heads, tokens, tokens})) {
    return false;
  }
  if (arguments.size() > kHiding) {
    const at::Tensor hiding = arguments[kHiding].toTensor();
    if (hiding.scalar_type() != at::kFloat || hiding.dim() != 5 || hiding.size(1) == 0 ||
        hiding.sizes() != at::IntArrayRef({1, hiding.size(1), 1, tokens, tokens}) ||
        windows % hiding.size(1) != 0 ||
        !IsByKind(arguments[kFirstShape].toIntVector(), hiding, windows, heads, form)) {
      return false;
    }
    const std::vector<int64_t> shape = arguments[kSecondShape].toIntVector();
    if (shape.size() != 4 || (shape[0] != -1 && shape[0] != windows) || shape[1] != heads ||
        shape[2] != tokens || shape[3] != tokens) {
      return false;
    }
  }
  return qkv.is_cpu() ||
         ops::HasWindowAttentionKernels(qkv, heads, bias.squeeze(0), MaskOf(arguments));
}

// Returns the operation for attention with a mask. `scale` is used only for Form::kScores, and `dropout` only for
// Form::kAttention.
FusedOperation AddingAttention(Form form, double scale, double dropout) {
  return [form, scale, dropout](const std::vector<IValue>& arguments) -> std::vector<at::Tensor> {
    const at::Tensor parts = arguments[kInput].toTensor().reshape(arguments[kShape].toIntVector());
    const int64_t heads = parts.size(3);
    const at::Tensor qkv = parts.flatten(2);
    const double usual_scale = 1 / std::sqrt(static_cast<double>(parts.size(4)));
    const bool is_scaled =
        form == Form::kAttention || std::abs(scale - usual_scale) < 1e-6 * usual_scale;
    at::Tensor y;
    if (is_scaled && dropout == 0 && IsOwn(qkv, heads, arguments, form)) {
      y = ops::WindowAttention(qkv, heads, arguments[kBias].toTensor().squeeze(0),
                               MaskOf(arguments));
    } else if (form == Form::kAttention) {
      y = ops::SelfAttention(qkv, heads, {.dropout = dropout, .mask = SumOf(arguments)});
    } else {
      y = FromScores(parts, arguments, [&](const at::Tensor& queries, const at::Tensor& keys) {
        return at::matmul(queries * scale, keys.transpose(-2, -1));
      });
    }
    return {y.reshape(arguments[kResult].toIntVector())};
  };
}

// Returns the operation for attention by cosines. Its last argument is the scale of each head, [1, heads, 1, 1] or
// [heads, 1, 1]; the others are those of AddingAttention(). Vectors shorter than `least` count as `least` long.
FusedOperation CosineAttention(double least) {
  return [least](std::vector<IValue> arguments) -> std::vector<at::Tensor> {
    const at::Tensor scale = arguments.back().toTensor();
    arguments.pop_back();
    const at::Tensor parts = arguments[kInput].toTensor().reshape(arguments[kShape].toIntVector());
    const int64_t heads = parts.size(3);
    const at::Tensor qkv = parts.flatten(2);
    const at::IntArrayRef sizes = scale.sizes();
    const bool is_of_heads =
        scale.scalar_type() == at::kFloat &&
        (sizes == at::IntArrayRef({1, heads, 1, 1}) || sizes == at::IntArrayRef({heads, 1, 1}));
    std::vector<IValue> with_floats = arguments;
    with_floats[kBias] = arguments[kBias].toTensor().to(at::kFloat);
    at::Tensor y;
    if (is_of_heads && IsOwn(qkv, heads, with_floats, Form::kScores)) {
      // WindowAttention() divides the products by the root of the heads' size.
      const double root = std::sqrt(static_cast<double>(parts.size(4)));
      y = ops::WindowAttention(ops::UnitQueries(qkv, heads, scale.flatten() * root, least), heads,
                               with_floats[kBias].toTensor().squeeze(0), MaskOf(arguments));
    } else {
      y = FromScores(parts, arguments, [&](const at::Tensor& queries, const at::Tensor& keys) {
        const auto unit = [&](const at::Tensor& x) {
          return x / at::linalg_vector_norm(x, 2, {-1}, /*keepdim=*/true).clamp_min(least);
        };
        return at::matmul(unit(queries), unit(keys).transpose(-2, -1)) * scale;
      });
    }
    return {y.reshape(arguments[kResult].toIntVector())};
  };
}

// ---- The chains ----------------------------------------------------------------------------------

// The operations that split one tensor into queries, keys and values.
struct Packed {
  std::vector<int64_t> chain;  // the nodes of reshape, permute, and unbind or three selects
  Argument input, shape;
};

// Returns the nodes that take `parts` from a tensor's dimension 0: an unbind, or a select for each part. Returns no nodes
// if the parts are not all parts of one tensor.
std::vector<int64_t> FindSplit(const Rewriter& rewriter, const std::vector<int64_t>& parts) {
  std::vector<int64_t> nodes;
  for (size_t i = 0; i < parts.size(); ++i) {
    const int64_t maker = rewriter.MakerOf(parts[i]);
    if (maker < 0) return {};
    const Node& node = rewriter.At(maker);
    if (NameOf(node) == "aten::unbind" && IsConstant(node.arguments[1], 0) &&
        node.results[0].elements == parts) {
      return {maker};
    }
    if (NameOf(node) != "aten::select" || !IsConstant(node.arguments[1], 0) ||
        !IsConstant(node.arguments[2], static_cast<int64_t>(i)) || !IsValue(node.arguments[0]) ||
        (i > 0 && node.arguments[0].value != rewriter.At(nodes[0]).arguments[0].value)) {
      return {};
    }
    nodes.push_back(maker);
  }
  return nodes;
}

// Finds the operations that make the queries, keys and values `parts` from one tensor. Returns nothing unless the only
// users of each part i are the nodes users[i].
std::optional<Packed> FindPacked(const Rewriter& rewriter, const std::vector<int64_t>& parts,
                                 const std::vector<std::vector<int64_t>>& users) {
  const std::vector<int64_t> split = FindSplit(rewriter, parts);
  if (split.empty()) return std::nullopt;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (!rewriter.AreUsersOf(parts[i], users[i])) return std::nullopt;
  }
  const int64_t permuted = rewriter.At(split[0]).arguments[0].value;
  const int64_t permute = rewriter.MakerOf(permuted);
  if (permute < 0 || NameOf(rewriter.At(permute)) != "aten::permute" ||
      !AreIntegers(rewriter.At(permute).arguments[1], {2, 0, 3, 1, 4}) ||
      !rewriter.AreUsersOf(permuted, split)) {
    return std::nullopt;
  }
  NodeChain before(rewriter, permute);
  before.Back("aten::reshape");
  if (!before.is_there()) return std::nullopt;
  const std::vector<Argument>& arguments = before.arguments();
  const auto shape = IntegersOf(arguments[1]);
  if (shape.size() != 5 || shape[2] != 3) return std::nullopt;
  Packed packed{.chain = before.passed(), .input = arguments[0], .shape = arguments[1]};
  packed.chain.push_back(permute);
  packed.chain.insert(packed.chain.end(), split.begin(), split.end());
  return packed;
}

// Returns the transpose and the reshape that follow `node` and put the heads of a token side by side again; empty if
// other operations follow.
std::vector<int64_t> FindResult(const Rewriter& rewriter, int64_t node) {
  NodeChain after(rewriter, node);
  after.On("aten::transpose").With(1, 1).With(2, 2).On("aten::reshape");
  return after.is_there() ? after.passed() : std::vector<int64_t>();
}

// Replaces the nodes of `packed`, `inner` and `result` by `operation`. The arguments of `operation` are the packed
// tensor, the shape to which it is reshaped to separate its parts, the shape of the result, and `more`.
void PutAttention(Rewriter& rewriter, const Packed& packed, const std::vector<int64_t>& inner,
                  const std::vector<int64_t>& result, FusedOperation operation,
                  const std::vector<Argument>& more, int64_t like) {
  std::vector<int64_t> chain = packed.chain;
  chain.insert(chain.end(), inner.begin(), inner.end());
  chain.insert(chain.end(), result.begin(), result.end());
  std::ranges::sort(chain);
  const Node& last = rewriter.At(result.back());
  std::vector<Argument> arguments{packed.input, packed.shape, last.arguments[1]};
  arguments.insert(arguments.end(), more.begin(), more.end());
  rewriter.Put(chain, std::move(operation), arguments, {last.results[0].value}, like);
}

// The tensors that are added to the scores, which are the operation's arguments from kBias on, and the nodes that add
// these tensors.
struct Added {
  std::vector<Argument> arguments;
  std::vector<int64_t> nodes;
};

// Returns the tensors in the mask of a scaled_dot_product_attention. Unless the mask is a sum with a tensor that was
// expanded and reshaped, the whole mask is the bias.
Added AddedByMask(const Rewriter& rewriter, int64_t node) {
  const Argument& mask = rewriter.At(node).arguments[kMask];
  Added bias_alone{.arguments = {mask}, .nodes = {}};
  const int64_t sum = rewriter.OwnMakerOf(node, kMask, "aten::add");
  if (sum < 0 || !IsSum(rewriter.At(sum))) return bias_alone;
  const std::vector<Argument>& addends = rewriter.At(sum).arguments;
  const int64_t reshape = rewriter.OwnMakerOf(sum, 1, "aten::reshape");
  if (reshape < 0) return bias_alone;
  const std::vector<Argument>& reshaped = rewriter.At(reshape).arguments;
  const int64_t expand = rewriter.OwnMakerOf(reshape, 0, "aten::expand");
  if (expand < 0) return bias_alone;
  const std::vector<Argument>& expanded = rewriter.At(expand).arguments;
  return {.arguments = {addends[0], expanded[0], expanded[1], reshaped[1]},
          .nodes = {expand, reshape, sum}};
}

// Returns the tensors that are added to a softmax's scores. The first of the returned nodes is that of the scores before
// anything is added. Returns no nodes if nothing is added to the scores.
Added AddedToScores(const Rewriter& rewriter, int64_t softmax) {
  const auto bias_of = [&](int64_t user) -> Added {
    const int64_t sum = rewriter.OwnMakerOf(user, 0, "aten::add");
    if (sum < 0 || !IsSum(rewriter.At(sum))) return {};
    const std::vector<Argument>& addends = rewriter.At(sum).arguments;
    const int64_t scores = rewriter.OwnMakerOf(sum, 0);
    if (scores < 0) return {};
    return {.arguments = {addends[1]}, .nodes = {scores, sum}};
  };
  const int64_t after = rewriter.OwnMakerOf(softmax, 0, "aten::reshape");
  if (after < 0) return bias_of(softmax);
  const int64_t sum = rewriter.OwnMakerOf(after, 0, "aten::add");
  if (sum < 0 || !IsSum(rewriter.At(sum))) return {};
  const std::vector<Argument>& addends = rewriter.At(sum).arguments;
  const int64_t before = rewriter.OwnMakerOf(sum, 0, "aten::reshape");
  if (before < 0) return {};
  Added added = bias_of(before);
  if (added.nodes.empty()) return {};
  added.arguments.insert(added.arguments.end(), {addends[1], rewriter.At(before).arguments[1],
                                                 rewriter.At(after).arguments[1]});
  added.nodes.insert(added.nodes.end(), {before, sum, after});
  return added;
}

// Returns the factor of a multiplication by a constant number; nothing if the factor is a tensor.
std::optional<double> FactorOf(const Node& product) {
  const Argument& factor = product.arguments[1];
  if (!IsConstant(factor)) return std::nullopt;
  if (factor.constant.isDouble()) return factor.constant.toDouble();
  const bool is_number = factor.constant.isTensor() && factor.constant.toTensor().dim() == 0 &&
                         factor.constant.toTensor().is_floating_point();
  return is_number ? std::optional(factor.constant.toTensor().item<double>()) : std::nullopt;
}

// The operations that compute scores from queries and keys.
struct Scores {
  int64_t queries, keys;  // values
  std::vector<int64_t> users_of_queries, users_of_keys;
  std::vector<int64_t> nodes;
  double number;  // the scale of all heads; if the scores are cosines, the least length of vectors
  std::vector<Argument> scales;  // the scale of each head, if the scores are cosines
};

// The operations of normalize(): x / max(|x|, least).
struct Unit {
  int64_t input;               // the value x
  std::vector<int64_t> users;  // the operations that use x
  std::vector<int64_t> nodes;
  double least;
};

// Returns the normalisation of vectors of the last dimension that ends with the node `division`.
std::optional<Unit> FindUnit(const Rewriter& rewriter, int64_t division) {
  if (division < 0 || NameOf(rewriter.At(division)) != "aten::div") return std::nullopt;
  const Argument& input = rewriter.At(division).arguments[0];
  const int64_t expand = rewriter.OwnMakerOf(division, 1, "aten::expand_as");
  if (!IsValue(input) || expand < 0 || rewriter.At(division).arguments.size() != 2) {
    return std::nullopt;
  }
  const int64_t clamp = rewriter.OwnMakerOf(expand, 0, "aten::clamp_min");
  if (clamp < 0) return std::nullopt;
  const std::optional<double> least = NumberOf(rewriter.At(clamp).arguments[1]);
  const int64_t norm = rewriter.OwnMakerOf(clamp, 0, "aten::linalg_vector_norm");
  if (norm < 0 || !least || *least <= 0) return std::nullopt;
  const std::vector<Argument>& own = rewriter.At(norm).arguments;
  const bool is_length = own[0].value == input.value && NumberOf(own[1]) == 2 &&
                         AreIntegers(own[2], {-1}) && IsConstant(own[3], true) &&
                         IsConstant(own[4], IValue());
  if (!is_length || rewriter.At(expand).arguments[1].value != input.value) return std::nullopt;
  return Unit{.input = input.value,
              .users = {norm, expand, division},
              .nodes = {norm, clamp, expand, division},
              .least = *least};
}

// Returns the scores (q * scale) @ k^T, which end with the node `product`. The node `transposed` is that of k^T.
std::optional<Scores> FindScaledScores(const Rewriter& rewriter, int64_t product,
                                       int64_t transposed) {
  const int64_t scaled = rewriter.OwnMakerOf(product, 0, "aten::mul");
  if (scaled < 0) return std::nullopt;
  const std::optional<double> scale = FactorOf(rewriter.At(scaled));
  const Argument& queries = rewriter.At(scaled).arguments[0];
  const Argument& keys = rewriter.At(transposed).arguments[0];
  if (!scale || !IsValue(queries)) return std::nullopt;
  return Scores{.queries = queries.value,
                .keys = keys.value,
                .users_of_queries = {scaled},
                .users_of_keys = {transposed},
                .nodes = {scaled, transposed, product},
                .number = *scale,
                .scales = {}};
}

// Returns the scores (q/|q| @ (k/|k|)^T) * scale, which end with the node `scaled`.
std::optional<Scores> FindCosines(const Rewriter& rewriter, int64_t scaled, int64_t product,
                                  int64_t transposed) {
  const Argument& scale = rewriter.At(scaled).arguments[1];
  if (!IsValue(scale)) return std::nullopt;
  const std::optional<Unit> queries = FindUnit(rewriter, rewriter.OwnMakerOf(product, 0));
  const std::optional<Unit> keys = FindUnit(rewriter, rewriter.OwnMakerOf(transposed, 0));
  if (!queries || !keys || queries->least != keys->least) return std::nullopt;
  Scores scores{.queries = queries->input,
                .keys = keys->input,
                .users_of_queries = queries->users,
                .users_of_keys = keys->users,
                .nodes = queries->nodes,
                .number = queries->least,
                .scales = {scale}};
  scores.nodes.insert(scores.nodes.end(), keys->nodes.begin(), keys->nodes.end());
  scores.nodes.insert(scores.nodes.end(), {transposed, product, scaled});
  return scores;
}

// Returns the scores that end with `node`, to which an attention adds its bias.
std::optional<Scores> FindScores(const Rewriter& rewriter, int64_t node) {
  const bool is_scaled = NameOf(rewriter.At(node)) == "aten::mul";
  const int64_t product = is_scaled ? rewriter.OwnMakerOf(node, 0, "aten::matmul") : node;
  if (product < 0 || NameOf(rewriter.At(product)) != "aten::matmul") return std::nullopt;
  const int64_t transposed = rewriter.OwnMakerOf(product, 1, "aten::transpose");
  if (transposed < 0) return std::nullopt;
  const std::vector<Argument>& turned = rewriter.At(transposed).arguments;
  if (!IsConstant(turned[1], -2) || !IsConstant(turned[2], -1)) return std::nullopt;
  return is_scaled ? FindCosines(rewriter, node, product, transposed)
                   : FindScaledScores(rewriter, product, transposed);
}

}  // namespace

void FuseAttention(Rewriter& rewriter, int64_t node) {
  const Node& attention = rewriter.At(node);
  const std::vector<Argument>& own = attention.arguments;
  const bool is_masked = IsValue(own[kMask]);
  const bool is_plain = IsValue(own[kQuery]) && IsValue(own[kKey]) && IsValue(own[kValue]) &&
                        (is_masked || IsConstant(own[kMask], IValue())) && AreOptionsKnown(own) &&
                        IsConstant(own[kScale], IValue());
  if (!is_plain) return;
  const double dropout = own[kDropout].constant.toDouble();
  const bool causal = own[kCausal].constant.toBool();
  if (is_masked && causal) return;
  const auto packed = FindPacked(rewriter, {own[kQuery].value, own[kKey].value, own[kValue].value},
                                 {{node}, {node}, {node}});
  const std::vector<int64_t> result = FindResult(rewriter, node);
  if (!packed || result.empty()) return;
  if (!is_masked) {
    PutAttention(rewriter, *packed, {node}, result, Attention(dropout, causal), {}, node);
    return;
  }
  const Added added = AddedByMask(rewriter, node);
  std::vector<int64_t> inner = added.nodes;
  inner.push_back(node);
  PutAttention(rewriter, *packed, inner, result, AddingAttention(Form::kAttention, 0, dropout),
               added.arguments, node);
}

void FuseSoftmaxAttention(Rewriter& rewriter, int64_t node) {
  const Node& softmax = rewriter.At(node);
  if (!IsValue(softmax.arguments[0]) || !IsConstant(softmax.arguments[1], -1) ||
      !IsConstant(softmax.arguments[2], IValue())) {
    return;
  }
  const Added added = AddedToScores(rewriter, node);
  if (added.nodes.empty()) return;
  const std::optional<Scores> scores = FindScores(rewriter, added.nodes.front());
  if (!scores) return;

  // The product with the values comes after the softmax.
  const int64_t mixed = rewriter.OnlyUser(node);
  if (mixed < 0 || NameOf(rewriter.At(mixed)) != "aten::matmul") return;
  const std::vector<Argument>& mixing = rewriter.At(mixed).arguments;
  if (!IsValue(mixing[1]) || mixing[0].value != softmax.results[0].value) return;
  std::vector<int64_t> inner = scores->nodes;
  inner.insert(inner.end(), added.nodes.begin() + 1, added.nodes.end());
  inner.insert(inner.end(), {node, mixed});

  const auto packed = FindPacked(rewriter, {scores->queries, scores->keys, mixing[1].value},
                                 {scores->users_of_queries, scores->users_of_keys, {mixed}});
  const std::vector<int64_t> result = FindResult(rewriter, mixed);
  if (!packed || result.empty()) return;
  std::vector<Argument> more = added.arguments;
  more.insert(more.end(), scores->scales.begin(), scores->scales.end());
  PutAttention(rewriter, *packed, inner, result,
               scores->scales.empty() ? AddingAttention(Form::kScores, scores->number, 0)
                                      : CosineAttention(scores->number),
               more, node);
}

}  // namespace lockstep::exported
