// Metrics: computes how good a model's outputs are on a whole data set, over all ranks.
//
// Each metric is computed over all samples, so it does not depend on the number of ranks. The definitions are
// scikit-learn's unless a line says otherwise. observe/metrics.inc is the list of the metrics; they are:
//   all        loss: the training loss without label smoothing; with class weights it is the weighted mean
//   classes    accuracy: share of samples whose class has the greatest output (of equal outputs the first one counts);
//              top5 (only for more than five classes; top_k_accuracy_score): share of samples whose class has one of
//              the five greatest outputs (of equal outputs the last ones count); f1: with two classes the F1 of class
//              1, otherwise macro_f1; auc (only for two classes); log_loss; balanced_accuracy; macro_f1 and
//              weighted_f1; matthews (matthews_corrcoef); quadratic_kappa (cohen_kappa_score with quadratic weights and
//              labels=range(classes), so a class that never occurs still adds to the distance between its neighbours);
//              map3 (for three and more classes; mean average precision at 3, as Kaggle defines it: 1, 1/2 or 1/3 if
//              the class has the greatest, second or third greatest output, otherwise 0; of equal outputs the first
//              one counts as the greatest)
//   labels     accuracy: share of samples whose labels are all predicted rightly; label_accuracy: share of labels that
//              are predicted rightly (1 - hamming_loss); f1, auc and log_loss: means over the labels. auc leaves out
//              labels that apply to all samples or to none, for which roc_auc_score is NaN, and remarks on it.
//   numbers    rmse (root_mean_squared_error); mae (mean_absolute_error); r2 (r2_score); rmsle
//              (root_mean_squared_log_error): rmse of log(1 + x), where x are the outputs and the targets; NaN if an x
//              is -1 or less, where scikit-learn raises an error. Each is the mean over the columns.
//   tokens     perplexity: e^loss; accuracy: share of positions at which the right token has the greatest output. The
//              metrics of classes are left out, because they would treat every token of the vocabulary as a class.
//   pixels     accuracy: share of the labeled pixels whose class has the greatest output; iou (jaccard_score) and dice
//              (f1_score): means over the classes that occur as a label or a prediction
//
// All metrics but auc are computed from sums over the samples and from three counts for each class: its labels, its
// predictions, and its right predictions. No metric needs a confusion matrix, whatever the number of classes. For r2,
// each column's mean and sum of squared deviations are merged over batches and ranks (Chan, Golub and LeVeque 1979), so
// numbers that are far from 0 lose no precision. auc is the share of all pairs of a positive and a negative sample in
// which the positive sample has the greater output; a pair with equal outputs counts as half (Mann-Whitney). auc is
// exact, because every rank gets the outputs of all samples.
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
  // For the reader: the reason why the metric is not defined, or what it leaves out; usually empty.
  std::string remark{};
};

// Returns the metrics in one line, such as "loss 0.0532  accuracy 0.9889". Leaves out metrics that are not defined.
std::string MetricsText(const std::vector<Metric>& metrics);

// Returns the line of MetricsText() with only the metrics for which IsBrief() is true (observe/metric_order.h).
std::string BriefMetricsText(const std::vector<Metric>& metrics);

// Returns a line for each remark of the metrics, such as "auc is not defined: all samples are of class 0".
std::vector<std::string> MetricRemarks(const std::vector<Metric>& metrics);

class Metrics {
 public:
  // Computes the metrics of a data set of `samples` samples, which `spec` describes, on `device`. Keeps references to
  // `communicator`, which is for tensors of `device`, and to `host`, which is for CPU tensors.
  Metrics(SampleSpec spec, int64_t samples, at::Device device, Communicator& communicator,
          Communicator& host);

  // Adds this rank's samples `first`, `first` + 1, ..., with the model's output for these samples, their targets, the
  // sum of their losses, and the sum of the weights of their targets (undefined: each target weighs 1).
  void Add(int64_t first, const at::Tensor& output, const at::Tensor& target,
           const at::Tensor& loss_sum, const at::Tensor& loss_weight = {});

  // Returns the metrics over the samples of all ranks. The first metric is the loss. Every rank must call Finish(), and
  // every rank gets the same metrics.
  std::vector<Metric> Finish();

 private:
  void AddClasses(int64_t first, const at::Tensor& output, const at::Tensor& target);
  void AddLabels(int64_t first, const at::Tensor& output, const at::Tensor& target);
  void AddNumbers(const at::Tensor& output, const at::Tensor& target);
  void AddPixels(const at::Tensor& output, const at::Tensor& target);
  void MergeColumns();
  // Adds predicted classes and labels, int64 [count] each, to counts_.
  void CountClasses(const at::Tensor& predicted, const at::Tensor& actual);

  SampleSpec spec_;
  int64_t samples_;
  Communicator& communicator_;
  Communicator& host_;
  at::Tensor sums_;  // float64: the sum of the losses, and the sums that the task's metrics need
  // float64 [3, classes]: the numbers of true positives, of predictions and of labels.
  at::Tensor counts_;
  // For numbers: float64 [4, columns], the mean of the targets, the sum of their squared deviations from the mean, the
  // sum of the squared differences between outputs and targets, and the sum of the squared differences between their
  // logarithms. added_ is the number of this rank's samples in columns_.
  at::Tensor columns_;
  int64_t added_ = 0;
  TargetUnit in_own_unit_;
  // For auc: the scores, float32 [samples, columns] on the CPU; undefined: auc is not computed.
  at::Tensor scores_;
  at::Tensor truths_;  // for auc: the truths, 0 or 1, with the type and the shape of scores_
};

// Returns the names of the metrics for samples of `spec`.
std::vector<std::string> MetricNames(const SampleSpec& spec);

// Returns the area under the receiver operating characteristic. `scores` and `truths` are float32 [samples] on the CPU,
// and truths are 0 or 1. The area is NaN if all truths are the same or a score is NaN.
double AreaUnderCurve(const at::Tensor& scores, const at::Tensor& truths);

}  // namespace lockstep
