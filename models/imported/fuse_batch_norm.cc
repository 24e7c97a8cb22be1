#include "models/imported/fuse_batch_norm.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/error.h"
#include "models/activation_checkpoint.h"
#include "models/imported/activation_of.h"
#include "ops/norm/norm_pool.h"
#include "ops/product/activation.h"

namespace lockstep::exported {
namespace {

using c10::IValue;
using ops::Activation;

// The arguments of aten::batch_norm.
enum NormArgument : size_t {
  kInput,
  kWeight,
  kBias,
  kRunningMean,
  kRunningVariance,
  kTraining,
  kMomentum,
  kEpsilon,
  kCudnn,
  kNormArguments
};

std::vector<at::Tensor> One(at::Tensor tensor) { return {std::move(tensor)}; }

at::Tensor TensorOf(const IValue& value) {
  return value.isTensor() ? value.toTensor() : at::Tensor();
}

// Throws c10::Error if each channel has only one value. This function is called only for norms whose statistics this
// rank does not share with other ranks. A norm with shared statistics counts the values of all ranks itself.
void CheckValues(const at::Tensor& x) {
  TORCH_CHECK(
      x.numel() > x.size(1),
      "one value of a channel has no variance: give each micro-batch of a rank two samples");
}

// A BatchNorm whose arguments begin at index `first`. A Norm keeps the work space of its kernels, `counters_`.
class Norm {
 public:
  explicit Norm(const SharedStatistics& shared, size_t first = 0)
      : shared_(&shared), first_(first) {}

  at::Tensor Input(const std::vector<IValue>& arguments) const {
    return arguments[first_ + kInput].toTensor();
  }

  ops::ChannelNorm Of(const std::vector<IValue>& arguments) {
    const auto argument = [&](NormArgument i) { return arguments[first_ + i]; };
    const at::Tensor x = Input(arguments);
    ops::ChannelNorm norm{.weight = argument(kWeight).toTensor(),
                          .bias = argument(kBias).toTensor(),
                          .ranks = shared_->ranks,
                          .epsilon = argument(kEpsilon).toDouble(),
                          .momentum = argument(kMomentum).toDouble()};
    const int64_t channels = norm.weight.numel();
    if (channels != channels_ || counters_.device() != x.device()) {
      counters_ = ops::NewNormCounters(channels, x.device());
      channels_ = channels;
    }
    norm.counters = counters_;
    if (norm.ranks == nullptr) CheckValues(x);
    if (!IsRecomputing()) {
      norm.running_mean = TensorOf(argument(kRunningMean));
      norm.running_var = TensorOf(argument(kRunningVariance));
    }
    return norm;
  }

  // Returns whether the samples count in the statistics: false on a rank without samples.
  bool counts() const { return shared_->has_samples; }

  // Returns normed(inputs). All inputs must have the same shape. On a rank without samples, calls `normed` with inputs
  // of no rows, so that the rank takes part in the collectives, and returns ones in the shape of the inputs.
  template <typename Normed>
  at::Tensor Counted(const std::vector<at::Tensor>& inputs, const Normed& normed) const {
    if (shared_->has_samples) return normed(inputs);
    std::vector<at::Tensor> none;
    for (const at::Tensor& input : inputs) none.push_back(input.narrow(0, 0, 0));
    return at::cat({normed(none), at::ones_like(inputs.front())});
  }

 private:
  const SharedStatistics* shared_;
  size_t first_;
  int64_t channels_ = -1;  // the number of channels that counters_ is for
  at::Tensor counters_;
};

at::Tensor Normed(Norm& norm, const std::vector<IValue>& arguments, Activation activation,
                  const at::Tensor& residual = {}) {
  std::vector<at::Tensor> inputs{norm.Input(arguments)};
  if (residual.defined()) inputs.push_back(residual);
  return norm.Counted(inputs, [&](const std::vector<at::Tensor>& of) {
    return ops::BatchNorm(of[0], norm.Of(arguments), activation,
                          of.size() > 1 ? of[1] : at::Tensor());
  });
}

// Computes a norm that has no weight or no bias with LibTorch's operation.
std::vector<at::Tensor> PlainNorm(const std::vector<IValue>& arguments) {
  const at::Tensor x = arguments[kInput].toTensor();
  CheckValues(x);
  const auto follows = [&](NormArgument i) {
    return IsRecomputing() ? at::Tensor() : TensorOf(arguments[i]);
  };
  return One(at::batch_norm(x, TensorOf(arguments[kWeight]), TensorOf(arguments[kBias]),
                            follows(kRunningMean), follows(kRunningVariance), /*training=*/true,
                            arguments[kMomentum].toDouble(), arguments[kEpsilon].toDouble(),
                            /*cudnn_enabled=*/true));
}

FusedOperation NormThen(Norm norm, Activation activation) {
  return [norm, activation](const std::vector<IValue>& arguments) mutable {
    return One(Normed(norm, arguments, activation));
  };
}

// Returns whether `a` and `b` have the same shape and type, so that one operation can add them.
bool AreAlike(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type();
}

// Returns a + b. If the addition is `in_place`, the result has a's type.
at::Tensor SumOf(const at::Tensor& a, const at::Tensor& b, bool in_place) {
  const at::Tensor sum = a + b;
  return in_place ? sum.to(a.scalar_type()) : sum;
}

// Returns the operation relu(norm(x) + residual). Its arguments are those of the norm, followed by `residual`.
FusedOperation NormAddRelu(Norm norm, bool in_place) {
  return [norm, in_place](const std::vector<IValue>& arguments) mutable {
    const at::Tensor residual = arguments[kNormArguments].toTensor();
    if (AreAlike(residual, norm.Input(arguments))) {
      return One(Normed(norm, arguments, Activation::kRelu, residual));
    }
    return One(at::relu(SumOf(Normed(norm, arguments, Activation::kNone), residual, in_place)));
  };
}

// Returns the operation relu(a(x_a) + b(x_b)). Its arguments are those of norm `a`, followed by those of norm `b`.
FusedOperation NormsAddRelu(Norm a, Norm b, bool in_place) {
  return [a, b, in_place](const std::vector<IValue>& arguments) mutable {
    const at::Tensor x_a = a.Input(arguments);
    const at::Tensor x_b = b.Input(arguments);
    if (!AreAlike(x_a, x_b)) {
      // Norm `b` runs first, as in JoinBatchNorms(): the collectives must have the same order on all ranks.
      const at::Tensor of_b = Normed(b, arguments, Activation::kNone);
      return One(at::relu(SumOf(Normed(a, arguments, Activation::kNone), of_b, in_place)));
    }
    return One(a.Counted({x_a, x_b}, [&](const std::vector<at::Tensor>& of) {
      return ops::JoinBatchNorms(of[0], a.Of(arguments), of[1], b.Of(arguments));
    }));
  };
}

FusedOperation NormPool(Norm norm) {
  return [norm](const std::vector<IValue>& arguments) mutable {
    const at::Tensor x = norm.Input(arguments);
    if (x.dim() == 4 && norm.counts()) return One(ops::NormPool(x, norm.Of(arguments)));
    return One(at::max_pool2d(Normed(norm, arguments, Activation::kRelu), 3, 2, 1));
  };
}

bool HasWeights(const Node& norm) {
  return IsValue(norm.arguments[kWeight]) && IsValue(norm.arguments[kBias]);
}

// Returns whether the node is a BatchNorm whose statistics the ranks cannot share.
bool IsOnlyOfThisRank(const Node& node) {
  if (NameOf(node) != "aten::batch_norm" && NameOf(node) != "aten::native_batch_norm") return false;
  return !IsConstant(node.arguments[kTraining], false) && !(IsBatchNorm(node) && HasWeights(node));
}

// Returns whether the node adds something to `value`. If it adds in place, `value` must be the tensor that is changed.
bool IsSumWith(const Node& node, int64_t value) {
  return IsSum(node) || (IsSum(node, "aten::add_") && node.arguments[0].value == value);
}

// Returns whether the node is the max-pooling that ops::NormPool() computes.
bool IsPool(const Node& node) {
  return NameOf(node) == "aten::max_pool2d" && SingleOf(node.arguments[1]) == 3 &&
         SingleOf(node.arguments[2]) == 2 && SingleOf(node.arguments[3]) == 1 &&
         SingleOf(node.arguments[4]) == 1 && IsConstant(node.arguments[5], false);
}

class NormFuser {
 public:
  NormFuser(Rewriter& rewriter, const SharedStatistics& shared)
      : rewriter_(rewriter), shared_(shared) {}

  void Fuse(int64_t norm) {
    if (!HasWeights(rewriter_.At(norm))) {
      Put({norm}, PlainNorm);
      return;
    }
    const int64_t user = rewriter_.OnlyUser(norm);
    const bool is_fused = user >= 0 && (FuseActivation(norm, user) || FuseSum(norm, user));
    if (!is_fused) Put({norm}, NormThen(Norm(shared_), Activation::kNone));
  }

 private:
  bool FuseActivation(int64_t norm, int64_t user) {
    const Activation activation = ActivationOf(rewriter_.At(user));
    const bool follows = activation == Activation::kRelu || activation == Activation::kSilu ||
                         activation == Activation::kHardswish;
    if (!follows) return false;
    const int64_t pool = activation == Activation::kRelu ? rewriter_.OnlyUser(user) : -1;
    if (pool >= 0 && IsPool(rewriter_.At(pool)) &&
        Put({norm, user, pool}, NormPool(Norm(shared_)))) {
      return true;
    }
    return Put({norm, user}, NormThen(Norm(shared_), activation));
  }

  // Fuses a norm, its sum with another branch, and the relu of the sum. Returns whether these nodes could be fused.
  bool FuseSum(int64_t norm, int64_t sum) {
    if (!IsSumWith(rewriter_.At(sum), rewriter_.At(norm).results[0].value)) return false;
    const int64_t relu = rewriter_.OnlyUser(sum);
    if (relu < 0 || ActivationOf(rewriter_.At(relu)) != Activation::kRelu) return false;
    const bool in_place = NameOf(rewriter_.At(sum)) == "aten::add_";
    const int64_t own = rewriter_.At(norm).results[0].value;
    const std::vector<Argument>& addends = rewriter_.At(sum).arguments;
    const int64_t branch = addends[0].value == own ? addends[1].value : addends[0].value;
    if (branch == own) return false;
    const int64_t other = rewriter_.MakerOf(branch);
    if (other >= 0 && IsBatchNorm(rewriter_.At(other)) && HasWeights(rewriter_.At(other)) &&
        rewriter_.OnlyUser(other) == sum) {
      const std::vector<Argument>& more = rewriter_.At(other).arguments;
      if (Put({std::min(norm, other), std::max(norm, other), sum, relu},
              NormsAddRelu(Norm(shared_), Norm(shared_, kNormArguments), in_place), norm, more))
        return true;
    }
    return Put({norm, sum, relu}, NormAddRelu(Norm(shared_), in_place), norm,
               {ValueArgument(branch)});
  }

  bool Put(const std::vector<int64_t>& chain, FusedOperation operation) {
    return Put(chain, std::move(operation), chain.front(), {});
  }

  // Replaces `chain` by `operation`, whose arguments are those of `norm`, followed by `more`. Returns whether the chain
  // was replaced.
  bool Put(const std::vector<int64_t>& chain, FusedOperation operation, int64_t norm,
           const std::vector<Argument>& more) {
    std::vector<Argument> arguments = rewriter_.At(norm).arguments;
    arguments.insert(arguments.end(), more.begin(), more.end());
    return rewriter_.Put(chain, std::move(operation), arguments,
                         {rewriter_.At(chain.back()).results[0].value}, norm);
  }

  Rewriter& rewriter_;
  const SharedStatistics& shared_;
};

}  // namespace

bool IsBatchNorm(const Node& node) {
  return NameOf(node) == "aten::batch_norm" && node.results[0].value >= 0 &&
         IsValue(node.arguments[kInput]) && IsConstant(node.arguments[kTraining], true) &&
         IsConstant(node.arguments[kMomentum]) && node.arguments[kMomentum].constant.isDouble() &&
         IsConstant(node.arguments[kEpsilon]) && node.arguments[kEpsilon].constant.isDouble();
}

void FuseBatchNorm(Rewriter& rewriter, int64_t node, const SharedStatistics& shared) {
  if (shared.ranks != nullptr && IsOnlyOfThisRank(rewriter.At(node))) {
    throw UsageError("ddp.sync_batch_norm: {}: ranks cannot share the statistics of {}",
                     rewriter.program().where, rewriter.At(node).name);
  }
  if (IsBatchNorm(rewriter.At(node))) NormFuser(rewriter, shared).Fuse(node);
}

}  // namespace lockstep::exported
