#include "models/imported/fuse_embedding.h"

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <vector>

#include "ops/token/embedding.h"

namespace lockstep::exported {
namespace {

using c10::IValue;

// The arguments of aten::embedding.
enum EmbeddingArgument : size_t { kWeight, kIndices, kPadding, kByFrequency, kSparse, kArguments };

// Returns whether the node is an embedding that ops::Embedded can describe: its gradients must be neither scaled by
// frequency nor sparse.
bool IsEmbedding(const Node& node) {
  return NameOf(node) == "aten::embedding" && node.results[0].value >= 0 &&
         IsValue(node.arguments[kWeight]) && IsValue(node.arguments[kIndices]) &&
         IsConstant(node.arguments[kPadding]) && node.arguments[kPadding].constant.isInt() &&
         IsConstant(node.arguments[kByFrequency], false) &&
         IsConstant(node.arguments[kSparse], false);
}

// Returns the sum of embeddings. `arguments` are those of all embeddings, one embedding after the other.
std::vector<at::Tensor> Sum(const std::vector<IValue>& arguments) {
  std::vector<ops::Embedded> addends;
  at::ScalarType type = arguments[kWeight].toTensor().scalar_type();
  for (size_t i = 0; i < arguments.size(); i += kArguments) {
    addends.push_back({.indices = arguments[i + kIndices].toTensor(),
                       .weight = arguments[i + kWeight].toTensor(),
                       .padding_index = arguments[i + kPadding].toInt()});
    type = c10::promoteTypes(type, addends.back().weight.scalar_type());
  }
  return {ops::EmbeddingSum(addends, type)};
}

}  // namespace

void FuseEmbedding(Rewriter& rewriter, int64_t node) {
  if (!IsEmbedding(rewriter.At(node))) return;
  std::vector<int64_t> chain{node};
  std::vector<Argument> arguments = rewriter.At(node).arguments;
  int64_t result = rewriter.At(node).results[0].value;
  for (int64_t sum = rewriter.OnlyUser(node); sum >= 0 && IsSum(rewriter.At(sum));
       sum = rewriter.OnlyUser(sum)) {
    const size_t other = rewriter.At(sum).arguments[0].value == result ? 1 : 0;
    const int64_t added = rewriter.OwnMakerOf(sum, other, "aten::embedding");
    if (added < 0 || !IsEmbedding(rewriter.At(added))) break;
    chain.insert(chain.end(), {added, sum});
    const std::vector<Argument>& more = rewriter.At(added).arguments;
    arguments.insert(arguments.end(), more.begin(), more.end());
    result = rewriter.At(sum).results[0].value;
  }
  std::ranges::sort(chain);
  rewriter.Put(chain, Sum, arguments, {result}, node);
}

}  // namespace lockstep::exported
