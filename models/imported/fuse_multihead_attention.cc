#include "models/imported/fuse_multihead_attention.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "models/imported/attention_arguments.h"
#include "models/imported/node_chain.h"
#include "ops/attention/attention.h"

namespace lockstep::exported {
namespace {

using c10::IValue;

// The arguments of aten::linear.
enum LinearArgument : size_t { kInput, kWeight, kBias };

std::optional<at::Tensor> MaybeTensor(const IValue& value) {
  return value.isTensor() ? std::optional(value.toTensor()) : std::nullopt;
}

// Returns the operation whose arguments are the input [count, tokens, width], and the weight and the bias of the first
// and of the last linear layer.
FusedOperation MultiheadAttention(int64_t heads, double dropout, bool causal) {
  return [heads, dropout, causal](const std::vector<IValue>& arguments) -> std::vector<at::Tensor> {
    const at::Tensor qkv =
        at::linear(arguments[0].toTensor(), arguments[1].toTensor(), MaybeTensor(arguments[2]));
    const at::Tensor y = ops::SelfAttention(qkv, heads, {.dropout = dropout, .causal = causal});
    return {at::linear(y, arguments[3].toTensor(), MaybeTensor(arguments[4]))};
  };
}

// The chain of nodes that computes the queries, the keys or the values.
struct Part {
  std::vector<int64_t> nodes;
  int64_t all = -1;  // the value that holds queries, keys and values
  std::vector<std::optional<int64_t>> shape;
};

std::optional<Part> FindPart(const Rewriter& rewriter, int64_t attention, size_t index) {
  const int64_t last = rewriter.OwnMakerOf(attention, index, "aten::reshape");
  if (last < 0) return std::nullopt;
  NodeChain chain(rewriter, last);
  chain.Back("aten::transpose").OfFirstTwo().Back("aten::reshape").Back("aten::select");
  chain.With(1, 0).With(2, static_cast<int64_t>(index));
  if (!chain.is_there() || !IsValue(chain.arguments()[0])) return std::nullopt;
  Part part{.nodes = chain.passed(),
            .all = chain.arguments()[0].value,
            .shape = IntegersOf(rewriter.At(last).arguments[1])};
  part.nodes.push_back(last);
  return part;
}

}  // namespace

void FuseMultiheadAttention(Rewriter& rewriter, int64_t node) {
  const Node& attention = rewriter.At(node);
  const std::vector<Argument>& own = attention.arguments;
  const bool is_plain =
      IsConstant(own[kMask], IValue()) && AreOptionsKnown(own) && IsConstant(own[kScale], IValue());
  if (!is_plain) return;
  std::vector<int64_t> nodes{node};
  std::vector<int64_t> selects;
  int64_t all = -1;
  std::optional<int64_t> heads;
  std::optional<int64_t> size;
  for (const size_t i : {kQuery, kKey, kValue}) {
    const auto part = FindPart(rewriter, node, i);
    if (!part || part->shape.size() != 4 || (all >= 0 && part->all != all)) return;
    all = part->all;
    heads = part->shape[1];
    size = part->shape[3];
    nodes.insert(nodes.end(), part->nodes.begin(), part->nodes.end());
    selects.push_back(part->nodes[2]);
  }
  const int64_t contiguous = rewriter.MakerOf(all);
  if (!heads || !size || contiguous < 0 || NameOf(rewriter.At(contiguous)) != "aten::contiguous" ||
      !std::ranges::is_permutation(rewriter.UsersOf(all), selects) ||
      all == rewriter.program().output) {
    return;
  }

  // Finds the chain from the input of the module to `contiguous`.
  NodeChain before(rewriter, contiguous);
  before.Back("aten::squeeze").With(1, -2).Back("aten::transpose").With(1, 0).With(2, -2);
  before.Back("aten::unsqueeze").With(1, 0).Back("aten::unflatten").With(1, -1);
  before.WithIntegers(2, {3, *heads * *size}).Back("aten::linear");
  if (!before.is_there()) return;
  const std::vector<Argument> first = before.arguments();
  before.Back("aten::transpose").OfFirstTwo();
  if (!before.is_there()) return;
  const Argument input = before.arguments()[0];

  // Finds the chain from the attention to the result of the module.
  NodeChain after(rewriter, node);
  after.On("aten::permute").WithIntegers(1, {2, 0, 1, 3});
  if (!after.is_there()) return;
  const int64_t next = rewriter.OnlyUser(after.node());
  if (next >= 0 && NameOf(rewriter.At(next)) == "aten::contiguous") after.On("aten::contiguous");
  after.On("aten::reshape").On("aten::linear");
  if (!after.is_there()) return;
  const std::vector<Argument> last = after.arguments();
  after.On("aten::reshape").On("aten::transpose").OfFirstTwo();
  if (!after.is_there()) return;

  nodes.push_back(contiguous);
  nodes.insert(nodes.end(), before.passed().begin(), before.passed().end());
  nodes.insert(nodes.end(), after.passed().begin(), after.passed().end());
  std::ranges::sort(nodes);
  rewriter.Put(
      nodes,
      MultiheadAttention(*heads, own[kDropout].constant.toDouble(), own[kCausal].constant.toBool()),
      {input, first[kWeight], first[kBias], last[kWeight], last[kBias]},
      {rewriter.At(after.node()).results[0].value}, node);
}

}  // namespace lockstep::exported
