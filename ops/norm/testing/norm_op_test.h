// Code that the tests of batch_norm.h and norm_pool.h share: random inputs and norms, PyTorch's norms in float64 as the
// reference, and ranks that share a batch.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <vector>

#include "ops/norm/batch_norm.h"
#include "ops/testing/op_test.h"

namespace lockstep::ops {

constexpr double kEpsilon = 1e-5;
constexpr double kMomentum = 0.1;

class NormOpTest : public OpTest {
 protected:
  // Returns the tolerance for values that are rounded to dtype().
  double tolerance() const {
    return dtype() == at::kFloat ? 2e-4 : dtype() == at::kHalf ? 2e-3 : 1.6e-2;
  }
  double SumTolerance() const { return dtype() == at::kFloat ? 1e-4 : 1e-3; }
  // Returns whether the test must skip tensors of these sizes, because the float64 reference takes too long on a CPU.
  bool IsForGpus(at::IntArrayRef sizes) const {
    return device() == at::kCPU && c10::multiply_integers(sizes) > 300'000;
  }
  // Returns random values. If `sizes` has four dimensions, the result is channels last.
  at::Tensor Random(at::IntArrayRef sizes) const {
    const at::Tensor values = 2 * at::randn(sizes, options()) + 0.5;
    return sizes.size() == 4 ? values.contiguous(at::MemoryFormat::ChannelsLast) : values;
  }
  // Returns a norm whose weights have both signs and are not close to 0.
  ChannelNorm Norm(int64_t channels) const {
    const at::TensorOptions floats = options(at::kFloat);
    const at::Tensor sign = at::randn({channels}, floats).sign();
    return {.weight = (sign * (at::rand({channels}, floats) + 0.5)).requires_grad_(),
            .bias = at::randn({channels}, floats).requires_grad_(),
            .running_mean = at::randn({channels}, floats),
            .running_var = at::rand({channels}, floats) + 0.5,
            .num_batches_tracked = at::zeros({}, options(at::kLong)),
            .counters = NewNormCounters(channels, device()),
            .epsilon = kEpsilon,
            .momentum = kMomentum};
  }
};

inline at::Tensor Exact(const at::Tensor& tensor) {
  return tensor.detach().to(at::kDouble).clone().requires_grad_();
}

// A norm's inputs and parameters as float64 leaf tensors.
struct Exactly {
  Exactly(const at::Tensor& x, const ChannelNorm& from, const at::Tensor& residual = {})
      : x(Exact(x)), norm(from) {
    norm.weight = Exact(from.weight);
    norm.bias = Exact(from.bias);
    norm.running_mean = from.running_mean.to(at::kDouble).clone();
    norm.running_var = from.running_var.to(at::kDouble).clone();
    if (residual.defined()) this->residual = Exact(residual);
  }
  // Returns the input of the activation: the normalised x, plus the residual if there is one.
  at::Tensor Sum() const {
    const at::Tensor y = at::batch_norm(x, norm.weight, norm.bias, norm.running_mean,
                                        norm.running_var, /*training=*/true, kMomentum, kEpsilon,
                                        /*cudnn_enabled=*/false);
    return residual.defined() ? y + residual : y;
  }
  at::Tensor x;
  ChannelNorm norm;
  at::Tensor residual;
};

// One of several ranks that run one after the other in this process, in rounds (InRanks()). There are no messages: this
// rank gets the tensors that the other ranks sent in the round before, which the caller passes as `ranks`. said()
// returns the tensors that this rank sends.
class RankInTurn : public NormRanks {
 public:
  using Said = std::vector<at::Tensor>;

  RankInTurn(const std::vector<Said>& ranks, size_t rank) : ranks_(ranks), rank_(rank) {}

  at::Tensor Gather(const at::Tensor& own) override { return at::stack(Exchange(own)); }
  void AddUp(const at::Tensor& sums) override { sums.copy_(at::stack(Exchange(sums)).sum(0)); }
  const Said& said() const { return said_; }

 private:
  std::vector<at::Tensor> Exchange(const at::Tensor& own) {
    const size_t exchange = said_.size();
    said_.push_back(own.clone());
    std::vector<at::Tensor> all;
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      if (rank == rank_) {
        all.push_back(said_.back());
      } else if (exchange < ranks_[rank].size()) {
        all.push_back(ranks_[rank][exchange]);
      }
    }
    return all;
  }

  const std::vector<Said> ranks_;
  const size_t rank_;
  Said said_;
};

// The results of one rank for the rank's part of a batch.
struct PartResults {
  at::Tensor y;
  std::vector<at::Tensor> gradients;  // the gradients of this rank's parts of the inputs
  std::vector<ChannelNorm> norms;     // the norms, whose weights and biases have gradients
};

// Computes y = op(parts of inputs, norms), and the gradients of the parts of inputs and of the norms' weights and
// biases, on ranks with the given numbers of rows. The ranks run one after the other, in three rounds. In each round a
// rank receives what the other ranks sent in the round before. A message of forward does not depend on received
// messages, and a message of backward depends only on the messages that forward received. Therefore the messages of
// forward are correct from the first round on, the messages of backward are correct from the second round on, and all
// results are correct in the third round.
template <typename Op>
std::vector<PartResults> InRanks(const std::vector<int64_t>& rows, const Op& op,
                                 const std::vector<at::Tensor>& inputs,
                                 const std::vector<ChannelNorm>& norms, const at::Tensor& dy) {
  std::vector<PartResults> results(rows.size());
  std::vector<RankInTurn::Said> heard(rows.size());
  for (int round = 0; round < 3; ++round) {
    std::vector<RankInTurn::Said> said;
    int64_t first = 0;
    for (size_t rank = 0; rank < rows.size(); ++rank) {
      const auto part = [&](const at::Tensor& tensor) {
        return tensor.detach().narrow(0, first, rows[rank]);
      };
      RankInTurn ranks(heard, rank);
      std::vector<at::Tensor> leaves;
      for (const at::Tensor& input : inputs) {
        leaves.push_back(part(input).clone().requires_grad_());
      }
      results[rank] = {};
      for (ChannelNorm norm : norms) {
        norm.weight = norm.weight.detach().clone().requires_grad_();
        norm.bias = norm.bias.detach().clone().requires_grad_();
        norm.running_mean = norm.running_mean.clone();
        norm.running_var = norm.running_var.clone();
        norm.num_batches_tracked = norm.num_batches_tracked.clone();
        norm.ranks = &ranks;
        results[rank].norms.push_back(norm);
      }
      const at::Tensor y = op(leaves, results[rank].norms);
      y.backward(part(dy));
      results[rank].y = y.detach();
      for (const at::Tensor& leaf : leaves) results[rank].gradients.push_back(leaf.grad());
      first += rows[rank];
      said.push_back(ranks.said());
    }
    heard = said;
  }
  // Checks that each rank sends the same numbers of values, whatever the rank's number of rows.
  for (const RankInTurn::Said& said : heard) {
    std::vector<int64_t> sizes;
    for (const at::Tensor& tensor : said) sizes.push_back(tensor.numel());
    std::vector<int64_t> expected;
    for (size_t i = 0; i < 2 * norms.size(); ++i) {
      const int64_t channels = norms.front().weight.numel();
      expected.push_back(i < norms.size() ? 2 * channels + 1 : 2 * channels);
    }
    EXPECT_EQ(sizes, expected);
  }
  return results;
}

// Checks that the combined results of all parts are close to the float64 results of the whole batch.
inline void ExpectWhole(const std::vector<PartResults>& parts, const at::Tensor& y,
                        const std::vector<at::Tensor>& gradients,
                        const std::vector<ChannelNorm>& norms, double tolerance,
                        double sum_tolerance) {
  const auto together = [&](const auto& tensor_of) {
    std::vector<at::Tensor> tensors;
    for (const PartResults& part : parts) tensors.push_back(tensor_of(part));
    return tensors;
  };
  const auto whole = [&](const auto& tensor_of) { return at::cat(together(tensor_of)); };
  const auto sum = [&](const auto& tensor_of) { return at::stack(together(tensor_of)).sum(0); };
  EXPECT_TRUE(IsNear(whole([](const PartResults& part) { return part.y; }), y, tolerance));
  for (size_t i = 0; i < gradients.size(); ++i) {
    const at::Tensor found = whole([&](const PartResults& part) { return part.gradients[i]; });
    EXPECT_TRUE(IsNear(found, gradients[i], tolerance)) << i;
  }
  for (size_t i = 0; i < norms.size(); ++i) {
    const auto norm_of = [i](const PartResults& part) { return part.norms[i]; };
    const auto gradient_of = [&](at::Tensor ChannelNorm::*weight) {
      return sum([&](const PartResults& part) { return (norm_of(part).*weight).grad(); });
    };
    EXPECT_TRUE(IsNear(gradient_of(&ChannelNorm::weight), norms[i].weight.grad(), sum_tolerance));
    EXPECT_TRUE(IsNear(gradient_of(&ChannelNorm::bias), norms[i].bias.grad(), sum_tolerance));
    for (const PartResults& part : parts) {
      const ChannelNorm norm = norm_of(part);
      EXPECT_TRUE(IsNear(norm.running_mean, norms[i].running_mean, 1e-5));
      EXPECT_TRUE(IsNear(norm.running_var, norms[i].running_var, 1e-5));
      EXPECT_EQ(norm.num_batches_tracked.item<int64_t>(), 1);
      EXPECT_FALSE(norm.counters.any().item<bool>());
    }
  }
}

// Returns three ways to divide a batch of `rows` rows among ranks: in halves, with an empty part, and with an empty
// part and a part of one row.
inline std::vector<std::vector<int64_t>> Shares(int64_t rows) {
  return {{rows / 2, rows - rows / 2}, {0, rows}, {rows - 1, 0, 1}};
}

}  // namespace lockstep::ops
