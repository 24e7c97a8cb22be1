#include "trainer/models/imported/fuse.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/tensor/autocast.h"
#include "base/tensor/foretold_gpu.h"
#include "trainer/models/activation_checkpoint.h"
#include "trainer/ops/norm/batch_norm.h"
#include "trainer/ops/norm/layer_norm.h"
#include "trainer/ops/norm/norm_pool.h"
#include "trainer/ops/product/activation.h"

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

at::Tensor TensorOf(const IValue& value) {
  return value.isTensor() ? value.toTensor() : at::Tensor();
}

// How many values of a channel all ranks have, they learn when they meet.
void CheckValues(const at::Tensor& x) {
  TORCH_CHECK(
      x.numel() > x.size(1),
      "one value of a channel has no variance: give each micro-batch of a rank two samples");
}

// A norm whose arguments begin at `first`. Keeps the counters of its kernels.
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

  // Whether the ranks count what it gets.
  bool counts() const { return shared_->has_samples; }

  // normed(inputs), where the inputs have x's shape; of a rank without samples, ones in this shape, to which the ranks
  // come by way of no rows.
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
  int64_t channels_ = -1;  // of the counters
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

// A norm without a weight or a bias, with LibTorch's operation.
at::Tensor PlainNorm(const std::vector<IValue>& arguments) {
  const at::Tensor x = arguments[kInput].toTensor();
  CheckValues(x);
  const auto follows = [&](NormArgument i) {
    return IsRecomputing() ? at::Tensor() : TensorOf(arguments[i]);
  };
  return at::batch_norm(x, TensorOf(arguments[kWeight]), TensorOf(arguments[kBias]),
                        follows(kRunningMean), follows(kRunningVariance), /*training=*/true,
                        arguments[kMomentum].toDouble(), arguments[kEpsilon].toDouble(),
                        /*cudnn_enabled=*/true);
}

FusedOperation NormThen(Norm norm, Activation activation) {
  return [norm, activation](const std::vector<IValue>& arguments) mutable {
    return Normed(norm, arguments, activation);
  };
}

// Whether they can be added in one operation: the sum has their shape and type.
bool AreAlike(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type();
}

// a + b; in place, in a's type.
at::Tensor SumOf(const at::Tensor& a, const at::Tensor& b, bool in_place) {
  const at::Tensor sum = a + b;
  return in_place ? sum.to(a.scalar_type()) : sum;
}

// The other branch is the last argument.
FusedOperation NormAddRelu(Norm norm, bool in_place) {
  return [norm, in_place](const std::vector<IValue>& arguments) mutable {
    const at::Tensor residual = arguments[kNormArguments].toTensor();
    if (AreAlike(residual, norm.Input(arguments))) {
      return Normed(norm, arguments, Activation::kRelu, residual);
    }
    return at::relu(SumOf(Normed(norm, arguments, Activation::kNone), residual, in_place));
  };
}

// The arguments of norm `a`, and then those of `b`.
FusedOperation NormsAddRelu(Norm a, Norm b, bool in_place) {
  return [a, b, in_place](const std::vector<IValue>& arguments) mutable {
    const at::Tensor x_a = a.Input(arguments);
    const at::Tensor x_b = b.Input(arguments);
    if (!AreAlike(x_a, x_b)) {
      // As JoinBatchNorms(), b first: ranks must meet in one order.
      const at::Tensor of_b = Normed(b, arguments, Activation::kNone);
      return at::relu(SumOf(Normed(a, arguments, Activation::kNone), of_b, in_place));
    }
    return a.Counted({x_a, x_b}, [&](const std::vector<at::Tensor>& of) {
      return ops::JoinBatchNorms(of[0], a.Of(arguments), of[1], b.Of(arguments));
    });
  };
}

FusedOperation NormPool(Norm norm) {
  return [norm](const std::vector<IValue>& arguments) mutable {
    const at::Tensor x = norm.Input(arguments);
    if (x.dim() == 4 && norm.counts()) return ops::NormPool(x, norm.Of(arguments));
    return at::max_pool2d(Normed(norm, arguments, Activation::kRelu), 3, 2, 1);
  };
}

// `rounds`: whoever uses the result rounds it under autocast.
FusedOperation RowsNorm(bool rounds) {
  return [rounds](const std::vector<IValue>& arguments) {
    const at::Tensor x = arguments[0].toTensor();
    const at::Tensor weight = arguments[2].toTensor();
    const at::Tensor bias = arguments[3].toTensor();
    const double epsilon = arguments[4].toDouble();
    const AutocastState autocast = AutocastState::Now(x.device().type());
    const bool gives_own = x.scalar_type() == at::kFloat || !autocast.enabled ||
                           (rounds && x.scalar_type() == autocast.dtype);
    if (IsOnGpu(x.device()) && gives_own) return ops::LayerNorm(x, weight, bias, epsilon);
    return at::layer_norm(x, arguments[1].toIntVector(), weight, bias, epsilon);
  };
}

std::string_view NameOf(const Node& node) {
  return node.operation ? std::string_view(node.operation->schema().name()) : std::string_view();
}

bool IsConstant(const Argument& argument) { return argument.kind == Argument::Kind::kConstant; }

bool IsConstant(const Argument& argument, const IValue& value) {
  return IsConstant(argument) && argument.constant == value;
}

// Whether the list says the same for height and width.
bool IsOfBoth(const Argument& argument, int64_t number) {
  if (!IsConstant(argument) || !argument.constant.isIntList()) return false;
  const std::vector<int64_t> numbers = argument.constant.toIntVector();
  return !numbers.empty() &&
         std::ranges::all_of(numbers, [&](int64_t other) { return other == number; });
}

// A norm with the statistics of its batch.
bool IsNorm(const Node& node) {
  return NameOf(node) == "aten::batch_norm" && node.results[0].value >= 0 &&
         node.arguments[kInput].kind == Argument::Kind::kValue &&
         IsConstant(node.arguments[kTraining], true) && IsConstant(node.arguments[kMomentum]) &&
         node.arguments[kMomentum].constant.isDouble() && IsConstant(node.arguments[kEpsilon]) &&
         node.arguments[kEpsilon].constant.isDouble();
}

bool HasWeights(const Node& norm) {
  return norm.arguments[kWeight].kind == Argument::Kind::kValue &&
         norm.arguments[kBias].kind == Argument::Kind::kValue;
}

// A norm whose statistics ranks cannot share.
bool IsOnlyOfThisRank(const Node& node) {
  if (NameOf(node) != "aten::batch_norm" && NameOf(node) != "aten::native_batch_norm") return false;
  return !IsConstant(node.arguments[kTraining], false) && !(IsNorm(node) && HasWeights(node));
}

// The activation that a norm can take over; kNone: there is none. In place it is the same.
Activation ActivationOf(const Node& node) {
  std::string_view name = NameOf(node);
  if (name.ends_with('_')) name.remove_suffix(1);
  if (name == "aten::relu") return Activation::kRelu;
  if (name == "aten::silu") return Activation::kSilu;
  return name == "aten::hardswish" ? Activation::kHardswish : Activation::kNone;
}

// A sum with `value`; in place, a sum that is written to it.
bool IsSumWith(const Node& node, int64_t value) {
  const bool in_place = NameOf(node) == "aten::add_";
  if ((NameOf(node) != "aten::add" && !in_place) ||
      node.operation->schema().overload_name() != "Tensor") {
    return false;
  }
  return node.arguments[0].kind == Argument::Kind::kValue &&
         node.arguments[1].kind == Argument::Kind::kValue && IsConstant(node.arguments[2], 1) &&
         (!in_place || node.arguments[0].value == value);
}

// relu's input pooled as ops::NormPool() does.
bool IsPool(const Node& node) {
  return NameOf(node) == "aten::max_pool2d" && IsOfBoth(node.arguments[1], 3) &&
         IsOfBoth(node.arguments[2], 2) && IsOfBoth(node.arguments[3], 1) &&
         IsOfBoth(node.arguments[4], 1) && IsConstant(node.arguments[5], false);
}

bool IsRowsNorm(const Node& node) {
  if (NameOf(node) != "aten::layer_norm" || node.results[0].value < 0) return false;
  const auto is_value = [&](size_t i) { return node.arguments[i].kind == Argument::Kind::kValue; };
  const Argument& shape = node.arguments[1];
  const bool is_of_rows =
      shape.kind == Argument::Kind::kList
          ? shape.elements.size() == 1
          : shape.constant.isIntList() && shape.constant.toIntList().size() == 1;
  return is_of_rows && is_value(0) && is_value(2) && is_value(3) && IsConstant(node.arguments[4]);
}

// Whether autocast rounds the node's first argument.
bool RoundsInput(const Node& node) {
  return node.autocast && (NameOf(node) == "aten::linear" || NameOf(node) == "aten::conv2d");
}

class Fuser {
 public:
  Fuser(Program& program, const SharedStatistics& shared)
      : program_(program), shared_(shared), maker_(program.values, -1), users_(program.values) {
    for (size_t i = 0; i < program.nodes.size(); ++i) {
      for (const int64_t value : ValuesOf(program.nodes[i])) users_[value].push_back(Number(i));
      for (const int64_t value : ResultsOf(program.nodes[i])) maker_[value] = Number(i);
    }
    for (const auto& [name, value] : program.buffers) buffers_.insert(value);
  }

  // Returns how many norms of batches there are.
  int64_t Fuse() {
    int64_t norms = 0;
    for (size_t i = 0; i < program_.nodes.size(); ++i) {
      if (shared_.ranks != nullptr && IsOnlyOfThisRank(program_.nodes[i])) {
        throw UsageError("ddp.sync_batch_norm: {}: ranks cannot share the statistics of {}",
                         program_.where, program_.nodes[i].name);
      }
      if (IsNorm(program_.nodes[i])) {
        ++norms;
        if (!gone_.contains(Number(i))) FuseNorm(Number(i));
      }
      if (IsRowsNorm(program_.nodes[i])) FuseRowsNorm(Number(i));
    }
    std::vector<Node> nodes;
    for (size_t i = 0; i < program_.nodes.size(); ++i) {
      if (const auto fused = fused_.find(Number(i)); fused != fused_.end()) {
        nodes.push_back(std::move(fused->second));
      } else if (!gone_.contains(Number(i))) {
        nodes.push_back(std::move(program_.nodes[i]));
      }
    }
    program_.nodes = std::move(nodes);
    FillLastUses(program_);
    return norms;
  }

 private:
  static int64_t Number(size_t node) { return static_cast<int64_t>(node); }

  const Node& At(int64_t node) const { return program_.nodes[node]; }

  // The only node that uses the result of this one, of the same modes; -1: there are several, or none.
  int64_t OnlyUser(int64_t node) const {
    const int64_t value = At(node).results[0].value;
    if (value < 0 || value == program_.output || users_[value].size() != 1) return -1;
    const int64_t user = users_[value][0];
    const bool is_alike = At(user).operation && At(user).grad == At(node).grad &&
                          At(user).autocast == At(node).autocast && !gone_.contains(user) &&
                          At(user).results.size() == 1 && At(user).results[0].value >= 0;
    return is_alike ? user : -1;
  }

  void FuseNorm(int64_t norm) {
    if (!HasWeights(At(norm))) {
      Put({norm}, PlainNorm);
      return;
    }
    const int64_t user = OnlyUser(norm);
    const bool is_fused = user >= 0 && (FuseActivation(norm, user) || FuseSum(norm, user));
    if (!is_fused) Put({norm}, NormThen(Norm(shared_), Activation::kNone));
  }

  bool FuseActivation(int64_t norm, int64_t user) {
    const Activation activation = ActivationOf(At(user));
    if (activation == Activation::kNone) return false;
    const int64_t pool = activation == Activation::kRelu ? OnlyUser(user) : -1;
    if (pool >= 0 && IsPool(At(pool)) && Put({norm, user, pool}, NormPool(Norm(shared_)))) {
      return true;
    }
    return Put({norm, user}, NormThen(Norm(shared_), activation));
  }

  // The sum of a norm and another branch, and relu of it.
  bool FuseSum(int64_t norm, int64_t sum) {
    if (!IsSumWith(At(sum), At(norm).results[0].value)) return false;
    const int64_t relu = OnlyUser(sum);
    if (relu < 0 || ActivationOf(At(relu)) != Activation::kRelu) return false;
    const bool in_place = NameOf(At(sum)) == "aten::add_";
    const int64_t own = At(norm).results[0].value;
    const std::vector<Argument>& addends = At(sum).arguments;
    const int64_t branch = addends[0].value == own ? addends[1].value : addends[0].value;
    if (branch == own) return false;
    const int64_t other = maker_[branch];
    if (other >= 0 && !gone_.contains(other) && IsNorm(At(other)) && HasWeights(At(other)) &&
        OnlyUser(other) == sum) {
      const std::vector<Argument>& more = At(other).arguments;
      if (Put({std::min(norm, other), std::max(norm, other), sum, relu},
              NormsAddRelu(Norm(shared_), Norm(shared_, kNormArguments), in_place), norm, more))
        return true;
    }
    return Put({norm, sum, relu}, NormAddRelu(Norm(shared_), in_place), norm,
               {{.kind = Argument::Kind::kValue, .value = branch}});
  }

  void FuseRowsNorm(int64_t norm) {
    const int64_t value = At(norm).results[0].value;
    const bool rounds =
        value != program_.output && std::ranges::all_of(users_[value], [&](int64_t user) {
          return RoundsInput(At(user)) && At(user).arguments[0].value == value;
        });
    Put({norm}, RowsNorm(rounds && At(norm).autocast));
  }

  bool Put(const std::vector<int64_t>& chain, FusedOperation operation) {
    return Put(chain, std::move(operation), chain.front(), {});
  }

  // Puts the operation where the chain's last node stood. Its arguments are the norm's and `more`.
  bool Put(const std::vector<int64_t>& chain, FusedOperation operation, int64_t norm,
           const std::vector<Argument>& more) {
    for (int64_t i = chain.front() + 1; i < chain.back(); ++i) {
      if (std::ranges::find(chain, i) == chain.end() && ChangesATensor(At(i))) return false;
    }
    Node node;
    node.fused = std::move(operation);
    node.arguments = At(norm).arguments;
    node.arguments.insert(node.arguments.end(), more.begin(), more.end());
    node.results = At(chain.back()).results;
    node.grad = At(norm).grad;
    node.autocast = At(norm).autocast;
    node.name = At(norm).name;
    gone_.insert(chain.begin(), chain.end());
    fused_[chain.back()] = std::move(node);
    return true;
  }

  // In place, other than a buffer, such as the number of batches.
  bool ChangesATensor(const Node& node) const {
    if (!node.operation) return false;
    const auto& arguments = node.operation->schema().arguments();
    for (size_t i = 0; i < node.arguments.size(); ++i) {
      if (!Writes(arguments[i])) continue;
      for (const int64_t value : ValuesOf(node.arguments[i])) {
        if (!buffers_.contains(value)) return true;
      }
    }
    return false;
  }

  Program& program_;
  const SharedStatistics& shared_;
  std::vector<int64_t> maker_;               // by value: the node that it arises with; -1: none
  std::vector<std::vector<int64_t>> users_;  // by value: nodes, one for each use
  std::set<int64_t> buffers_;                // values
  std::set<int64_t> gone_;                   // nodes that are part of a fused one
  std::map<int64_t, Node> fused_;            // by the node in whose place it is
};

}  // namespace

int64_t Fuse(Program& program, const SharedStatistics& shared) {
  return Fuser(program, shared).Fuse();
}

}  // namespace lockstep::exported
