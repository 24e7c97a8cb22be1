// Metrics: computes how good a model's outputs are on a whole data set, over all ranks.
//
// Each metric is computed over all samples, so it does not depend on the number of ranks. The definitions are
// scikit-learn's. The metrics of each task are:
//   classes   loss; accuracy: share of samples whose greatest output is that of their class; top5 (only for more than
//             five classes): share of samples whose class has one of the five greatest outputs; f1: with two classes
//             that of class 1, otherwise the mean over the classes that occur as a label or a prediction; auc (only
//             for two classes)
//   labels    loss; accuracy: share of labels that are right; f1 and auc: means over the labels (auc leaves out labels
//             that apply to all samples or to none)
//   numbers   loss; rmse: root of the mean squared difference; mae: mean absolute difference
//   tokens    loss; perplexity: e^loss; accuracy: share of positions at which the greatest output is the right token's
// auc is computed over all pairs of a positive and a negative sample. It is the share of pairs in which the positive
// sample has the greater output; a pair with equal outputs counts as half (Mann-Whitney). auc is exact, because every
// rank gets the outputs of all samples.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "data/dataset/dataset.h"

namespace lockstep {

struct Metric {
  std::string name;
  double value = 0;  // NaN where it is not defined for these samples
};

// "loss 0.0532  accuracy 0.9889".
std::string MetricsText(const std::vector<Metric>& metrics);

class Metrics {
 public:
  // For `samples` samples of `spec`, on `device`. Keeps references to the communicators, of tensors of
  // `device` and of the CPU's.
  Metrics(SampleSpec spec, int64_t samples, at::Device device, Communicator& communicator,
          Communicator& host);

  // Counts this rank's samples `first`, `first` + 1, ... with the model's output for them, their targets
  // and their summed loss.
  void Add(int64_t first, const at::Tensor& output, const at::Tensor& target,
           const at::Tensor& loss_sum);

  // All ranks' together; the loss is the first. Every rank must call it, and gets the same.
  std::vector<Metric> Finish();

 private:
  void AddClasses(int64_t first, const at::Tensor& output, const at::Tensor& target);
  void AddLabels(int64_t first, const at::Tensor& output, const at::Tensor& target);

  SampleSpec spec_;
  int64_t samples_;
  Communicator& communicator_;
  Communicator& host_;
  at::Tensor sums_;    // float64: of the loss, and of what the task adds up
  at::Tensor counts_;  // float64 [3, classes]: true positives, predicted, actual
  at::Tensor scores_;  // float32 [samples, columns] on the CPU, for auc; undefined: there is none
  at::Tensor truths_;  // likewise: 0 or 1
};

// The names of those that samples of `spec` have.
std::vector<std::string> MetricNames(const SampleSpec& spec);

// The area under the receiver operating characteristic: scores, truths: float32 [samples] on the CPU,
// truths 0 or 1. NaN where all truths are the same or a score is NaN.
double AreaUnderCurve(const at::Tensor& scores, const at::Tensor& truths);

}  // namespace lockstep
