// BatchNorm: batch normalisation with the statistics of one rank's samples, or of the samples of all ranks. This module
// replaces torch.nn's BatchNorm1d, BatchNorm2d, BatchNorm3d and SyncBatchNorm, and its parameters and buffers have the
// same names as theirs.
//
// If the ranks share statistics, forward and backward contain collectives, so every rank must run the module in every
// step. A rank without samples passes an empty input, [0, ...].
#pragma once

#include <torch/nn/module.h>

#include <memory>

#include "comm/communicator.h"
#include "ops/norm/batch_norm.h"

namespace lockstep {

// Wraps `sync` in the interface that the norm operations take. Returns null if `sync` is null.
std::unique_ptr<ops::NormRanks> NormRanksOf(Communicator* sync);

class BatchNorm : public torch::nn::Module {
 public:
  // Makes a norm of `channels` channels. `sync` is ModelSpec::sync_batch_norm: null if each rank uses its own
  // statistics.
  BatchNorm(int64_t channels, Communicator* sync, double epsilon = 1e-5, double momentum = 0.1);

  // Normalises `input`, [count, channels, ...] in any float type, adds `residual`, and applies `activation`, which is
  // kNone or kRelu. `residual` has the shape and type of `input`, or is undefined. The result has input's shape. In
  // training the norm uses the statistics of this batch and updates running_mean and running_var with them. In
  // evaluation it uses running_mean and running_var.
  at::Tensor forward(const at::Tensor& input, ops::Activation activation = ops::Activation::kNone,
                     const at::Tensor& residual = {});

  // Returns the max-pooling of forward(input, kRelu) with windows of 3, stride 2 and padding 1. `input` is [count,
  // channels, height, width]. In training this is one fused operation.
  at::Tensor Pool(const at::Tensor& input);

  // Returns relu(forward(input) + other.forward(other_input)). Both inputs have the same shape and type. In training
  // this is one fused operation.
  at::Tensor Join(const at::Tensor& input, BatchNorm& other, const at::Tensor& other_input);

 private:
  // Returns the `norm` argument of ops::BatchNorm() and its variants, which run in training.
  ops::ChannelNorm NormOf(const at::Tensor& input);

  // The ranks that share statistics; null: each rank has its own statistics.
  std::unique_ptr<ops::NormRanks> ranks_;
  double epsilon_;
  double momentum_;
  at::Tensor weight_, bias_;               // [channels]
  at::Tensor running_mean_, running_var_;  // [channels]
  at::Tensor num_batches_tracked_;         // int64, 0-dimensional
  at::Tensor counters_;                    // work space of the kernels (ops::ChannelNorm::counters)
};

}  // namespace lockstep
