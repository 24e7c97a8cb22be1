// Metrics: computes how good a model's outputs are on a whole data set, over all ranks.
//
// Each metric is computed over all samples, so it does not depend on the number of ranks. The definitions are
// scikit-learn's unless a line says otherwise. observe/metrics.inc is the list of the metrics; they are:
//   all        loss: what training makes small, without label smoothing; with weights of classes it is their weighted
//              mean
//   classes    accuracy: share of samples whose greatest output is that of their class; top5 (only for more than five
//              classes): share of samples whose class has one of the five greatest outputs; f1: with two classes that
//              of class 1, otherwise macro_f1; auc (only for two classes); log_loss; balanced_accuracy; macro_f1 and
//              weighted_f1; matthews (matthews_corrcoef); quadratic_kappa (cohen_kappa_score with quadratic weights
//              and labels=range(classes), so a class that never occurs still counts as a step); map3 (for three and
//              more classes; mean average precision at 3, as Kaggle defines it: 1, 1/2 or 1/3 if the class has the
//              greatest, second or third output, otherwise 0)
//   labels     accuracy: share of labels that are right; f1, auc and log_loss: means over the labels (auc leaves out
//              labels that apply to all samples or to none)
//   numbers    rmse: root of the mean squared difference; mae: mean absolute difference; r2: the mean over the columns;
//              rmsle: rmse of log(1 + x), not a number if an x is -1 or less. rmse, mae and rmsle are of all columns
//              together.
//   tokens     perplexity: e^loss; accuracy: share of positions at which the greatest output is the right token's. The
//              metrics of classes are left out: they would count every token of a vocabulary.
//   pixels     accuracy: share of the pixels that have a class whose greatest output is that of their class; iou
//              (jaccard_score) and dice (f1_score): means over the classes that occur as a label or a prediction
//
// They come from sums over the samples, and from counts by class: the labels, the predictions, and those that are both.
// No metric needs a confusion matrix, whatever the number of classes. r2 merges each column's mean and squared
// distances from it (Chan, Golub and LeVeque 1979), so numbers that are far from 0 lose no digits. auc is computed over
// all pairs of a positive and a negative sample. It is the share of pairs in which the positive sample has the greater
// output; a pair with equal outputs counts as half (Mann-Whitney). auc is exact, because every rank gets the outputs of
// all samples.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "data/dataset/dataset.h"
#include "data/dataset/target_unit.h"

namespace lockstep {

struct Metric {
  std::string name;
  double value = 0;  // NaN if the metric is not defined for these samples
};

// Returns the metrics in one line, such as "loss 0.0532  accuracy 0.9889".
std::string MetricsText(const std::vector<Metric>& metrics);

// Returns such a line of the metrics that short lines show (observe/metric_order.h).
std::string BriefMetricsText(const std::vector<Metric>& metrics);

class Metrics {
 public:
  // Computes the metrics of `samples` samples of `spec` on `device`. Keeps references to `communicator`, which is for
  // tensors of `device`, and to `host`, which is for CPU tensors.
  Metrics(SampleSpec spec, int64_t samples, at::Device device, Communicator& communicator,
          Communicator& host);

  // Adds this rank's samples `first`, `first` + 1, ..., with the model's output for them, their targets, the sum of
  // their losses, and the sum of the targets' weights in it (undefined: each target weighs 1).
  void Add(int64_t first, const at::Tensor& output, const at::Tensor& target,
           const at::Tensor& loss_sum, const at::Tensor& loss_weight = {});

  // Returns the metrics over the samples of all ranks. The first metric is the loss. Every rank must call it, and every
  // rank gets the same metrics.
  std::vector<Metric> Finish();

 private:
  void AddClasses(int64_t first, const at::Tensor& output, const at::Tensor& target);
  void AddLabels(int64_t first, const at::Tensor& output, const at::Tensor& target);
  void AddNumbers(const at::Tensor& output, const at::Tensor& target);
  void AddPixels(const at::Tensor& output, const at::Tensor& target);
  void MergeColumns();
  // Counts predictions and labels of classes, int64 [count] each.
  void CountClasses(const at::Tensor& predicted, const at::Tensor& actual);

  SampleSpec spec_;
  int64_t samples_;
  Communicator& communicator_;
  Communicator& host_;
  at::Tensor sums_;  // float64: the sum of the losses, and the other sums of the task
  // float64 [3, classes]: the numbers of true positives, of predictions and of labels.
  at::Tensor counts_;
  // For r2: float64 [3, columns] of the targets, their mean, their squared distances from it, and the squared
  // differences of the outputs from them; and the number of this rank's samples in it.
  at::Tensor columns_;
  int64_t added_ = 0;
  TargetUnit in_own_unit_;
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
