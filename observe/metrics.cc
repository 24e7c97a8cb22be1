#include "observe/metrics.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace lockstep {
namespace {

constexpr double kUndefined = std::numeric_limits<double>::quiet_NaN();
constexpr int64_t kTop = 5;

// What sums_ holds.
enum Sum { kLoss, kRight, kRightInTop, kSquares, kDistances, kPixels, kSums };
enum Count { kTruePositives, kPredicted, kActual, kCounts };

// 2 tp / (predicted + actual), float64 [classes]; 0 where a class is neither.
at::Tensor F1Of(const at::Tensor& counts) {
  return 2 * counts[kTruePositives] / (counts[kPredicted] + counts[kActual]).clamp_min(1);
}

// The mean of `scores`, float64 [classes], over the classes that occur as a label or a prediction.
double MeanOfOccurring(const at::Tensor& scores, const at::Tensor& counts) {
  const at::Tensor occurs = (counts[kPredicted] + counts[kActual]).gt(0).to(at::kDouble);
  return ((scores * occurs).sum() / occurs.sum()).item<double>();
}

// tp / (predicted + actual - tp), float64 [classes]; 0 where a class is neither.
at::Tensor IntersectionOverUnion(const at::Tensor& counts) {
  const at::Tensor united = counts[kPredicted] + counts[kActual] - counts[kTruePositives];
  return counts[kTruePositives] / united.clamp_min(1);
}

double MeanOfNumbers(const std::vector<double>& values) {
  double sum = 0;
  int count = 0;
  for (const double value : values) {
    if (std::isnan(value)) continue;
    sum += value;
    ++count;
  }
  return count == 0 ? kUndefined : sum / count;
}

}  // namespace

std::string MetricsText(const std::vector<Metric>& metrics) {
  std::string text;
  for (const Metric& metric : metrics) {
    text += fmt::format("{}{} {:.4f}", text.empty() ? "" : "  ", metric.name, metric.value);
  }
  return text;
}

Metrics::Metrics(SampleSpec spec, int64_t samples, at::Device device, Communicator& communicator,
                 Communicator& host)
    : spec_(std::move(spec)), samples_(samples), communicator_(communicator), host_(host) {
  const at::TensorOptions options(device);
  sums_ = at::zeros({kSums}, options.dtype(at::kDouble));
  const bool labels = spec_.task == Task::kMultiLabel;
  if (labels || spec_.task == Task::kClassification || spec_.task == Task::kSegmentation) {
    counts_ = at::zeros({kCounts, spec_.classes}, options.dtype(at::kDouble));
  }
  int64_t columns = 0;
  if (labels) {
    columns = spec_.classes;
  } else if (spec_.task == Task::kClassification && spec_.classes == 2) {
    columns = 1;
  }
  if (columns > 0) {
    scores_ = at::zeros({samples, columns}, at::kFloat);
    truths_ = at::zeros_like(scores_);
  }
}

void Metrics::Add(int64_t first, const at::Tensor& output, const at::Tensor& target,
                  const at::Tensor& loss_sum) {
  sums_[kLoss].add_(loss_sum);
  // A model may have more columns, to fill up its matrices.
  const int64_t columns = spec_.task == Task::kSegmentation ? 1 : -1;
  const at::Tensor outputs = output.narrow(columns, 0, spec_.classes);
  switch (spec_.task) {
    case Task::kClassification:
      return AddClasses(first, outputs, target);
    case Task::kLanguage:
      sums_[kRight].add_(outputs.argmax(-1).eq(target).sum());
      return;
    case Task::kMultiLabel:
      return AddLabels(first, outputs, target);
    case Task::kSegmentation:
      return AddPixels(outputs, target);
    case Task::kRegression: {
      const at::Tensor difference = outputs.to(at::kDouble) - target;
      sums_[kSquares].add_(difference.square().sum());
      sums_[kDistances].add_(difference.abs().sum());
      return;
    }
  }
}

void Metrics::AddClasses(int64_t first, const at::Tensor& output, const at::Tensor& target) {
  const at::Tensor predicted = output.argmax(-1);
  sums_[kRight].add_(predicted.eq(target).sum());
  if (spec_.classes > kTop) {
    const at::Tensor top = std::get<1>(output.topk(kTop, -1));
    sums_[kRightInTop].add_(top.eq(target.unsqueeze(-1)).sum());
  }
  CountClasses(predicted, target);
  if (!scores_.defined()) return;
  const int64_t count = output.size(0);
  const at::Tensor values = output.to(at::kFloat);
  scores_.narrow(0, first, count).copy_(values.narrow(1, 1, 1) - values.narrow(1, 0, 1));
  truths_.narrow(0, first, count).copy_(target.unsqueeze(1));
}

void Metrics::AddPixels(const at::Tensor& output, const at::Tensor& target) {
  const at::Tensor has_class = target.ne(kIgnoredPixel);
  const at::Tensor predicted = output.argmax(1).masked_select(has_class);
  const at::Tensor actual = target.masked_select(has_class).to(at::kLong);
  sums_[kPixels].add_(actual.numel());
  sums_[kRight].add_(predicted.eq(actual).sum());
  CountClasses(predicted, actual);
}

void Metrics::CountClasses(const at::Tensor& predicted, const at::Tensor& actual) {
  const at::Tensor right = predicted.eq(actual).to(at::kDouble);
  const at::Tensor one = at::ones_like(right);
  counts_[kTruePositives].scatter_add_(0, actual, right);
  counts_[kPredicted].scatter_add_(0, predicted, one);
  counts_[kActual].scatter_add_(0, actual, one);
}

void Metrics::AddLabels(int64_t first, const at::Tensor& output, const at::Tensor& target) {
  const at::Tensor predicted = output.gt(0).to(at::kDouble);
  const at::Tensor actual = target.to(at::kDouble);
  sums_[kRight].add_(predicted.eq(actual).sum());
  counts_[kTruePositives].add_((predicted * actual).sum(0));
  counts_[kPredicted].add_(predicted.sum(0));
  counts_[kActual].add_(actual.sum(0));
  const int64_t count = output.size(0);
  scores_.narrow(0, first, count).copy_(output);
  truths_.narrow(0, first, count).copy_(target);
}

std::vector<Metric> Metrics::Finish() {
  const auto sum = [](const at::Tensor& part, Communicator& communicator) {
    if (!part.defined()) return;
    communicator.AllReduceSum(part, communicator.MakeLabel("evaluation")).Wait();
  };
  sum(sums_, communicator_);
  sum(counts_, communicator_);
  sum(scores_, host_);
  sum(truths_, host_);
  const at::Tensor means = (sums_ / static_cast<double>(samples_ * spec_.targets())).cpu();
  const auto mean = [&](Sum sum) { return means[sum].item<double>(); };
  std::vector<Metric> metrics{{"loss", mean(kLoss)}};
  if (spec_.task == Task::kRegression) {
    metrics.push_back({"rmse", std::sqrt(mean(kSquares))});
    metrics.push_back({"mae", mean(kDistances)});
    return metrics;
  }
  if (spec_.task == Task::kSegmentation) {
    const at::Tensor accuracy = sums_[kRight] / sums_[kPixels];
    metrics.push_back({"accuracy", accuracy.item<double>()});
    const at::Tensor counts = counts_.cpu();
    metrics.push_back({"iou", MeanOfOccurring(IntersectionOverUnion(counts), counts)});
    return metrics;
  }
  if (spec_.task == Task::kLanguage) metrics.push_back({"perplexity", std::exp(mean(kLoss))});
  metrics.push_back({"accuracy", mean(kRight)});
  if (spec_.task == Task::kLanguage) return metrics;
  if (spec_.task == Task::kClassification && spec_.classes > kTop) {
    metrics.push_back({"top5", mean(kRightInTop)});
  }
  const at::Tensor counts = counts_.cpu();
  const at::Tensor f1 = F1Of(counts);
  if (spec_.task == Task::kMultiLabel) {
    metrics.push_back({"f1", f1.mean().item<double>()});
  } else if (spec_.classes == 2) {
    metrics.push_back({"f1", f1[1].item<double>()});
  } else {
    metrics.push_back({"f1", MeanOfOccurring(f1, counts)});
  }
  if (scores_.defined()) {
    std::vector<double> areas;
    for (int64_t column = 0; column < scores_.size(1); ++column) {
      areas.push_back(AreaUnderCurve(scores_.select(1, column), truths_.select(1, column)));
    }
    metrics.push_back({"auc", MeanOfNumbers(areas)});
  }
  return metrics;
}

std::vector<std::string> MetricNames(const SampleSpec& spec) {
  switch (spec.task) {
    case Task::kRegression:
      return {"loss", "rmse", "mae"};
    case Task::kLanguage:
      return {"loss", "perplexity", "accuracy"};
    case Task::kMultiLabel:
      return {"loss", "accuracy", "f1", "auc"};
    case Task::kSegmentation:
      return {"loss", "accuracy", "iou"};
    case Task::kClassification:
      break;
  }
  std::vector<std::string> names{"loss", "accuracy"};
  if (spec.classes > kTop) names.push_back("top5");
  names.push_back("f1");
  if (spec.classes == 2) names.push_back("auc");
  return names;
}

double AreaUnderCurve(const at::Tensor& scores, const at::Tensor& truths) {
  const at::Tensor score = scores.contiguous();
  const at::Tensor truth = truths.contiguous();
  const float* s = score.const_data_ptr<float>();
  const float* t = truth.const_data_ptr<float>();
  const int64_t count = score.numel();
  if (std::any_of(s, s + count, [](float value) { return std::isnan(value); })) return kUndefined;
  std::vector<int64_t> order(count);
  std::iota(order.begin(), order.end(), int64_t{0});
  std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return s[a] < s[b]; });

  double negatives = 0;  // with a lower score
  double pairs_in_order = 0;
  double positives = 0;
  for (int64_t begin = 0; begin < count;) {
    int64_t end = begin;
    double equal_positives = 0;
    while (end < count && s[order[end]] == s[order[begin]]) equal_positives += t[order[end++]];
    const double equal_negatives = static_cast<double>(end - begin) - equal_positives;
    pairs_in_order += equal_positives * (negatives + equal_negatives / 2);
    negatives += equal_negatives;
    positives += equal_positives;
    begin = end;
  }
  return pairs_in_order / (positives * negatives);
}

}  // namespace lockstep
