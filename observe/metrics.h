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
//   pixels    loss; accuracy: share of the pixels that have a class whose greatest output is that of their class; iou:
//             the mean over the classes that occur as a label or a prediction of intersection over union (jaccard_score)
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
  double value = 0;  // NaN if the metric is not defined for these samples
};

// Returns the metrics in one line, such as "loss 0.0532  accuracy 0.9889".
std::string MetricsText(const std::vector<Metric>& metrics);

class Metrics {
 public:
  // Computes the metrics of `samples` samples of `spec` on `device`. Keeps references to `communicator`, which is for
  // tensors of `device`, and to `host`, which is for CPU tensors.
  Metrics(SampleSpec spec, int64_t samples, at::Device device, Communicator& communicator,
          Communicator& host);

  // Adds this rank's samples `first`, `first` + 1, ..., with the model's output for them, their targets and the sum of
  // their losses.
  void Add(int64_t first, const at::Tensor& output, const at::Tensor& target,
           const at::Tensor& loss_sum);

  // Returns the metrics over the samples of all ranks. The first metric is the loss. Every rank must call it, and every
  // rank gets the same metrics.
  std::vector<Metric> Finish();

 private:
  void AddClasses(int64_t first, const at::Tensor& output, const at::Tensor& target);
  void AddLabels(int64_t first, const at::Tensor& output, const at::Tensor& target);
  void AddPixels(const at::Tensor& output, const at::Tensor& target);
  // Counts predictions and labels of classes, int64 [count] each.
  void CountClasses(const at::Tensor& predicted, const at::Tensor& actual);

  SampleSpec spec_;
  int64_t samples_;
  Communicator& communicator_;
  Communicator& host_;
  at::Tensor sums_;  // float64: the sum of the losses, and the other sums of the task
  // float64 [3, classes]: the numbers of true positives, of predictions and of labels.
  at::Tensor counts_;
  // For auc: float32 [samples, columns] on the CPU; undefined: auc is not computed.
  at::Tensor scores_;
  at::Tensor truths_;  // for auc: 0 or 1, with the shape of scores_
};

// Returns the names of the metrics for samples of `spec`.
std::vector<std::string> MetricNames(const SampleSpec& spec);

// Returns the area under the receiver operating characteristic. `scores` and `truths` are float32 [samples] on the CPU,
// and truths are 0 or 1. The area is NaN if all truths are the same or a score is NaN.
double AreaUnderCurve(const at::Tensor& scores, const at::Tensor& truths);

}  // namespace lockstep
