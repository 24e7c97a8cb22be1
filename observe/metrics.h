// Metrics: how good a model's outputs are on a whole data set, over all ranks.
//
// By task, each over all samples, whatever the ranks (definitions as scikit-learn's):
//   classes   loss; accuracy: share whose greatest output is their class's; top5 (above five classes):
//             share whose class is among the five greatest; f1: of class 1 where there are two, otherwise
//             the mean over the classes that occur as a class or a prediction; auc (two classes)
//   labels    loss; accuracy: share of labels that are right; f1 and auc: means over the labels (auc:
//             over those that apply to some samples and not to others)
//   numbers   loss; rmse: root of the mean squared difference; mae: mean absolute difference
//   tokens    loss; perplexity: e^loss; accuracy: share of tokens whose greatest output is theirs
// auc is the share of pairs of a positive and a negative sample that the outputs put in order, half of
// those that they put equal (Mann-Whitney), computed exactly: every rank gets every sample's output.
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
