// BatchNorm: normalises over the samples of one rank, or of all ranks. This one module replaces torch.nn.BatchNorm1d to
// BatchNorm3d and SyncBatchNorm, and has the same names of parameters and buffers.
//
// If the ranks share statistics, every rank must run the module in every step, because the module contains collectives.
// If a rank has no samples, its input is empty, [0, ...]. The collectives are part of forward and backward.
#pragma once

#include <torch/nn/module.h>

#include <memory>

#include "comm/communicator.h"
#include "trainer/ops/norm/batch_norm.h"

namespace lockstep {

class BatchNorm : public torch::nn::Module {
 public:
  // `sync`: ModelSpec::sync_batch_norm.
  BatchNorm(int64_t channels, Communicator* sync, double epsilon = 1e-5, double momentum = 0.1);

  // input: floating point [count, channels, ...]; residual: of its shape and type, or undefined, which
  // is added to what is normalised, before `activation`, kNone or kRelu. -> the same shape. In training by the
  // statistics of this batch, which running_mean and running_var follow; in evaluation by those two.
  at::Tensor forward(const at::Tensor& input, ops::Activation activation = ops::Activation::kNone,
                     const at::Tensor& residual = {});

  // Max-pooling of forward(input, kRelu) with windows of 3, stride 2 and padding 1, input being [count,
  // channels, height, width]: one operation in training.
  at::Tensor Pool(const at::Tensor& input);

  // relu(forward(input) + other.forward(other_input)), the inputs being of one shape and type: one
  // operation in training by this rank's own statistics.
  at::Tensor Join(const at::Tensor& input, BatchNorm& other, const at::Tensor& other_input);

 private:
  // What the operations take in training.
  ops::ChannelNorm NormOf(const at::Tensor& input);

  std::unique_ptr<ops::NormRanks> ranks_;  // that share statistics; null: each has its own
  double epsilon_;
  double momentum_;
  at::Tensor weight_, bias_;               // [channels]
  at::Tensor running_mean_, running_var_;  // [channels]
  at::Tensor num_batches_tracked_;         // int64, 0-dimensional
  at::Tensor counters_;                    // of the operations; on the device of their last input
};

}  // namespace lockstep
