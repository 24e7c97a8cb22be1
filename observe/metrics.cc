#include "observe/metrics.h"

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>
#include <set>
#include <string_view>

#include "base/printable_number.h"
#include "observe/metric_order.h"

namespace lockstep {
namespace {

constexpr double kUndefined = std::numeric_limits<double>::quiet_NaN();
constexpr int64_t kTop = 5;   // the number of greatest outputs that top5 considers
constexpr int64_t kBest = 3;  // the number of greatest outputs that map3 considers

// The least probability that log_loss uses: as in scikit-learn's log_loss, a smaller probability is replaced by this
// value.
constexpr double kLeastProbability = std::numeric_limits<double>::epsilon();

// The indices of sums_.
enum Sum {
  kLoss,
  kLossWeight,
  kRight,  // the samples, tokens or pixels that are right; a sample with several labels is right if all of them are
  kRightInTop,
  kReciprocalRanks,
  kLogLoss,
  kClassSteps,  // squares of the differences between the predicted class and the right class
  kRightLabels,
  kDistances,
  kPixels,
  kSums
};
enum Count { kTruePositives, kPredicted, kActual, kCounts };
enum Column { kMean, kSpread, kResidual, kSquaredLogs, kColumns };

bool HasClasses(const SampleSpec& spec) { return spec.task == Task::kClassification; }
bool HasLabels(const SampleSpec& spec) { return spec.task == Task::kMultiLabel; }
bool HasNumbers(const SampleSpec& spec) { return spec.task == Task::kRegression; }
bool HasTokens(const SampleSpec& spec) { return spec.task == Task::kLanguage; }
bool HasMasks(const SampleSpec& spec) { return spec.task == Task::kSegmentation; }

// Returns whether each sample has one class out of at least `classes` classes.
bool HasRanks(const SampleSpec& spec, int64_t classes) {
  return HasClasses(spec) && spec.classes >= classes;
}

// Returns the number of output columns for which an auc is computed.
int64_t AucColumns(const SampleSpec& spec) {
  if (HasLabels(spec)) return spec.classes;
  return HasClasses(spec) && spec.classes == 2 ? 1 : 0;
}

// The sums over all samples, on the CPU.
struct Totals {
  const SampleSpec& spec;
  int64_t samples;
  at::Tensor sums;     // float64 [kSums]
  at::Tensor counts;   // float64 [kCounts, classes], undefined for numbers and tokens
  at::Tensor columns;  // float64 [kColumns, columns], undefined except for numbers
  double auc;

  double Of(Sum sum) const { return sums[sum].item<double>(); }
  // Returns the mean of `sum` over all targets.
  double Mean(Sum sum) const { return Of(sum) / static_cast<double>(samples * spec.targets()); }
  double Loss() const { return Of(kLoss) / Of(kLossWeight); }
};

double Accuracy(const Totals& of) {
  if (HasMasks(of.spec)) return of.Of(kRight) / of.Of(kPixels);
  if (HasLabels(of.spec)) return of.Of(kRight) / static_cast<double>(of.samples);
  return of.Mean(kRight);
}

// Returns the mean over the columns of the root of `squares` / samples, where `squares` is a column's sum of squares.
double MeanOfRoots(const Totals& of, Column squares) {
  return (of.columns[squares] / static_cast<double>(of.samples)).sqrt().mean().item<double>();
}

// Returns 2 tp / (predicted + actual) of each class, float64 [classes], where tp, predicted and actual are the class's
// numbers of true positives, predictions and labels. Returns 0 for a class that is neither predicted nor a label.
at::Tensor F1OfEach(const at::Tensor& counts) {
  return 2 * counts[kTruePositives] / (counts[kPredicted] + counts[kActual]).clamp_min(1);
}

// Returns the mean of `scores`, float64 [classes], over the classes that occur as a label or a prediction.
double MeanOfOccurring(const at::Tensor& scores, const at::Tensor& counts) {
  const at::Tensor occurs = (counts[kPredicted] + counts[kActual]).gt(0).to(at::kDouble);
  return ((scores * occurs).sum() / occurs.sum()).item<double>();
}

double F1(const Totals& of) {
  const at::Tensor f1 = F1OfEach(of.counts);
  if (HasLabels(of.spec)) return f1.mean().item<double>();
  return of.spec.classes == 2 ? f1[1].item<double>() : MeanOfOccurring(f1, of.counts);
}

// Returns the mean of the classes' F1, weighted by the number of labels of each class.
double F1ByLabels(const at::Tensor& counts) {
  return ((F1OfEach(counts) * counts[kActual]).sum() / counts[kActual].sum()).item<double>();
}

// Returns tp / (predicted + actual - tp) of each class, float64 [classes], where tp, predicted and actual are the
// class's numbers of true positives, predictions and labels. Returns 0 for a class that is neither predicted nor a
// label.
at::Tensor IntersectionOverUnion(const at::Tensor& counts) {
  const at::Tensor united = counts[kPredicted] + counts[kActual] - counts[kTruePositives];
  return counts[kTruePositives] / united.clamp_min(1);
}

// Returns the mean of tp / actual over the classes that occur as a label, where tp and actual are the class's numbers
// of true positives and labels.
double MeanRecall(const at::Tensor& counts) {
  const at::Tensor recall = counts[kTruePositives] / counts[kActual].clamp_min(1);
  return (recall.sum() / counts[kActual].gt(0).sum()).item<double>();
}

// Returns (n r - sum(p a)) / sqrt((n^2 - sum(p^2)) (n^2 - sum(a^2))), where n is the number of samples, r is the number
// of right predictions, p and a are the numbers of predictions and of labels of a class, and the sums are over the
// classes (Gorodkin 2004). Returns 0 if all predictions or all labels are of one class.
double MatthewsCorrelation(const at::Tensor& counts) {
  const at::Tensor n = counts[kActual].sum();
  const at::Tensor both = counts[kPredicted].dot(counts[kActual]);
  const double of_predicted = (n * n - counts[kPredicted].square().sum()).item<double>();
  const double of_actual = (n * n - counts[kActual].square().sum()).item<double>();
  if (of_predicted == 0 || of_actual == 0) return 0;
  const double of_both = (n * counts[kTruePositives].sum() - both).item<double>();
  return of_both / std::sqrt(of_predicted * of_actual);
}

// Returns 1 - sum((p - a)^2) / E, where the sum is over the samples, p is a sample's predicted class, and a is its
// label. E is the expected value of the sum if p and a were independent. E is computed from the numbers of predictions
// and of labels of each class.
double QuadraticKappa(const Totals& of) {
  const at::Tensor number = at::arange(of.spec.classes, at::kDouble);
  const at::Tensor predicted = of.counts[kPredicted];
  const at::Tensor actual = of.counts[kActual];
  const at::Tensor by_chance =
      ((predicted + actual) * number.square()).sum() -
      2 * predicted.dot(number) * actual.dot(number) / static_cast<double>(of.samples);
  return 1 - of.Of(kClassSteps) / by_chance.item<double>();
}

// Returns the mean of 1 - residual / spread over the columns. `residual` is a column's sum of squared differences
// between outputs and targets, and `spread` is its sum of squared deviations of the targets from their mean. As in
// scikit-learn's r2_score, a column whose targets are all equal gives 1 if its outputs are right and otherwise 0, and
// r2 is undefined for a single sample.
double R2(const Totals& of) {
  // The mean of equal numbers is rounded, so their spread may be greater than 0. The rounding of each deviation is at
  // most a few units in the last place of the mean.
  constexpr double kRounding = 64 * std::numeric_limits<double>::epsilon();
  if (of.samples < 2) return kUndefined;
  const at::Tensor spread = of.columns[kSpread];
  const at::Tensor residual = of.columns[kResidual];
  const at::Tensor rounding =
      (of.columns[kMean] * kRounding).square() * static_cast<double>(of.samples);
  const at::Tensor of_constant = residual.eq(0).to(at::kDouble);
  return at::where(spread.le(rounding), of_constant, 1 - residual / spread).mean().item<double>();
}

// Returns log(1 + x), float64; NaN where x <= -1.
at::Tensor LogOf(const at::Tensor& numbers) {
  return numbers.masked_fill(numbers.le(-1), kUndefined).log1p();
}

// The order of classes whose outputs are equal.
enum class Ties {
  kLeastFirst,     // as argmax, which chooses the predicted class
  kGreatestFirst,  // as scikit-learn's top_k_accuracy_score
};

// Returns the number of classes that come before the class `target` in the order of the greatest outputs, int64
// [samples]. If an output is NaN, it comes before all numbers, and if that of `target` is NaN, it comes last.
at::Tensor RankOf(const at::Tensor& target, const at::Tensor& output, Ties ties) {
  const at::Tensor column = target.unsqueeze(-1);
  const at::Tensor own = output.gather(-1, column);
  const at::Tensor number = at::arange(output.size(-1), column.options());
  const at::Tensor comes_first = ties == Ties::kLeastFirst ? number.lt(column) : number.gt(column);
  const at::Tensor is_greater = output.le(own).logical_not();
  return is_greater.logical_or(output.eq(own).logical_and(comes_first)).sum(-1);
}

struct Entry {
  const char* name;
  bool (*has)(const SampleSpec& spec);
  double (*value)(const Totals& of);
};

constexpr Entry kEntries[] = {
#define METRIC(name, better, told, has, value) \
  {name,                                       \
   [](const SampleSpec& spec) -> bool {        \
     static_cast<void>(spec);                  \
     return has;                               \
   },                                          \
   [](const Totals& of) -> double { return value; }},
#include "observe/metrics.inc"
#undef METRIC
};

// Returns which labels apply to all samples or to none, bool [classes].
at::Tensor OneClassLabels(const Totals& of) {
  const at::Tensor actual = of.counts[kActual];
  return actual.eq(0).logical_or(actual.eq(static_cast<double>(of.samples)));
}

// Returns the reason why the metric `name` is not defined (Metric::remark).
std::string WhyUndefined(std::string_view name, const Totals& of) {
  constexpr const char* kBadOutputs = "the outputs are not all finite numbers";
  if (HasMasks(of.spec) && of.Of(kPixels) == 0) return "no pixel of the masks has a class";
  if (name == "auc") {
    if (HasLabels(of.spec) && OneClassLabels(of).all().item<bool>()) {
      return "each label applies to all samples or to none";
    }
    const at::Tensor actual = of.counts[kActual];
    if (!HasLabels(of.spec) && actual.eq(0).any().item<bool>()) {
      return fmt::format("all samples are of class {}", actual.argmax().item<int64_t>());
    }
  }
  if (name == "quadratic_kappa") {
    return fmt::format("all labels and all predictions are of class {}",
                       of.counts[kActual].argmax().item<int64_t>());
  }
  if (name == "loss" && of.Of(kLossWeight) == 0) return "the weights of all targets are 0";
  if (name == "r2" && of.samples < 2) return "there is a single sample";
  if (name == "rmsle" && !std::isnan(of.columns[kResidual].sum().item<double>())) {
    return "a target or an output is -1 or less";
  }
  return kBadOutputs;
}

// Returns what auc leaves out, for Metric::remark.
std::string WhatAucLeavesOut(const Totals& of) {
  if (!HasLabels(of.spec)) return "";
  const at::Tensor left_out = OneClassLabels(of);
  const auto count = left_out.sum().item<int64_t>();
  if (count == 0) return "";
  const auto first = left_out.to(at::kByte).argmax().item<int64_t>();
  if (count == 1) {
    const bool none = of.counts[kActual][first].item<double>() == 0;
    return fmt::format("label {} applies to {}, so the mean is of the other {} label{}", first,
                       none ? "no sample" : "all samples", of.spec.classes - 1,
                       of.spec.classes == 2 ? "" : "s");
  }
  return fmt::format(
      "{} of {} labels apply to all samples or to none, the first of them label {}, so the mean is "
      "of the other {}",
      count, of.spec.classes, first, of.spec.classes - count);
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
    if (std::isnan(metric.value)) continue;
    text += fmt::format("{}{} {:.4f}", text.empty() ? "" : "  ", metric.name, metric.value);
  }
  return text;
}

std::vector<std::string> MetricRemarks(const std::vector<Metric>& metrics) {
  std::vector<std::string> lines;
  std::set<std::string> told;  // the reasons that are in `lines`
  for (const Metric& metric : metrics) {
    if (metric.remark.empty()) continue;
    if (!std::isnan(metric.value)) {
      lines.push_back(fmt::format("{}: {}", metric.name, metric.remark));
      continue;
    }
    if (!told.insert(metric.remark).second) continue;
    std::vector<std::string> names;
    for (const Metric& other : metrics) {
      if (std::isnan(other.value) && other.remark == metric.remark) names.push_back(other.name);
    }
    lines.push_back(fmt::format("{} {} not defined: {}", fmt::join(names, ", "),
                                names.size() == 1 ? "is" : "are", metric.remark));
  }
  return lines;
}

std::string BriefMetricsText(const std::vector<Metric>& metrics) {
  std::vector<Metric> brief;
  std::ranges::copy_if(metrics, std::back_inserter(brief),
                       [](const Metric& metric) { return IsBrief(metric.name); });
  return MetricsText(brief);
}

Metrics::Metrics(SampleSpec spec, int64_t samples, at::Device device, Communicator& communicator,
                 Communicator& host)
    : spec_(std::move(spec)),
      samples_(samples),
      communicator_(communicator),
      host_(host),
      in_own_unit_(spec_, device) {
  const at::TensorOptions options = at::TensorOptions(device).dtype(at::kDouble);
  sums_ = at::zeros({kSums}, options);
  if (HasClasses(spec_) || HasLabels(spec_) || HasMasks(spec_)) {
    counts_ = at::zeros({kCounts, spec_.classes}, options);
  }
  if (HasNumbers(spec_)) columns_ = at::zeros({kColumns, spec_.classes}, options);
  if (const int64_t columns = AucColumns(spec_); columns > 0) {
    scores_ = at::zeros({samples, columns}, at::kFloat);
    truths_ = at::zeros_like(scores_);
  }
}

void Metrics::Add(int64_t first, const at::Tensor& output, const at::Tensor& target,
                  const at::Tensor& loss_sum, const at::Tensor& loss_weight) {
  sums_[kLoss].add_(loss_sum);
  if (loss_weight.defined()) {
    sums_[kLossWeight].add_(loss_weight);
  } else {
    sums_[kLossWeight].add_(static_cast<double>(target.size(0) * spec_.targets()));
  }
  // Drops the outputs beyond the classes, which come from padding of the model's matrices. The dimension of the classes
  // is 1 for pixels, and otherwise the last dimension.
  const int64_t columns = HasMasks(spec_) ? 1 : -1;
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
    case Task::kRegression:
      return AddNumbers(in_own_unit_(outputs), in_own_unit_(target));
  }
}

void Metrics::AddNumbers(const at::Tensor& output, const at::Tensor& target) {
  const at::Tensor difference = output - target;
  sums_[kDistances].add_(difference.abs().sum());
  columns_[kSquaredLogs].add_((LogOf(output) - LogOf(target)).square().sum(0));
  columns_[kResidual].add_(difference.square().sum(0));
  const at::Tensor mean = target.mean(0);
  const at::Tensor apart = mean - columns_[kMean];
  const auto before = static_cast<double>(added_);
  const auto count = static_cast<double>(target.size(0));
  added_ += target.size(0);
  const double share = count / static_cast<double>(added_);
  columns_[kSpread].add_((target - mean).square().sum(0) + apart.square() * (before * share));
  columns_[kMean].add_(apart * share);
}

// Merges the columns_ of all ranks, so that on each rank columns_ describes the samples of all ranks.
void Metrics::MergeColumns() {
  const auto sum = [&](const at::Tensor& part) {
    communicator_.AllReduceSum(part, communicator_.MakeLabel("evaluation")).Wait();
  };
  const auto count = static_cast<double>(added_);
  const at::Tensor mean = columns_[kMean] * (count / static_cast<double>(samples_));
  sum(mean);
  columns_[kSpread].add_((columns_[kMean] - mean).square() * count);
  columns_[kMean].copy_(mean * (count / static_cast<double>(samples_)));
  sum(columns_);
}

void Metrics::AddClasses(int64_t first, const at::Tensor& output, const at::Tensor& target) {
  const at::Tensor predicted = output.argmax(-1);
  sums_[kRight].add_(predicted.eq(target).sum());
  if (HasRanks(spec_, kTop + 1)) {
    sums_[kRightInTop].add_(RankOf(target, output, Ties::kGreatestFirst).lt(kTop).sum());
  }
  if (HasRanks(spec_, kBest)) {
    const at::Tensor rank = RankOf(target, output, Ties::kLeastFirst).unsqueeze(-1);
    const at::Tensor places = at::arange(kBest, sums_.options());
    sums_[kReciprocalRanks].add_((places.eq(rank) / (places + 1)).sum());
  }
  sums_[kClassSteps].add_((predicted - target).square().sum());
  const at::Tensor logs = at::log_softmax(output, -1, at::kDouble);
  sums_[kLogLoss].add_(
      logs.gather(-1, target.unsqueeze(-1)).neg().clamp_max(-std::log(kLeastProbability)).sum());
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
  const at::Tensor right = predicted.eq(actual);
  sums_[kRight].add_(right.all(-1).sum());
  sums_[kRightLabels].add_(right.sum());
  counts_[kTruePositives].add_((predicted * actual).sum(0));
  counts_[kPredicted].add_(predicted.sum(0));
  counts_[kActual].add_(actual.sum(0));
  // `logs` has, for each label, -log of the probability that the output gives to the truth. For a label that applies,
  // this probability is 1 / (1 + e^-output), and otherwise it is 1 / (1 + e^output).
  const at::Tensor logs = at::softplus(at::where(actual.gt(0), -1, 1) * output.to(at::kDouble));
  sums_[kLogLoss].add_(logs.clamp_max(-std::log(kLeastProbability)).sum());
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
  if (columns_.defined()) MergeColumns();
  Totals totals{.spec = spec_, .samples = samples_, .sums = sums_.cpu(), .auc = kUndefined};
  if (counts_.defined()) totals.counts = counts_.cpu();
  if (columns_.defined()) totals.columns = columns_.cpu();
  if (scores_.defined()) {
    std::vector<double> areas;
    for (int64_t column = 0; column < scores_.size(1); ++column) {
      areas.push_back(AreaUnderCurve(scores_.select(1, column), truths_.select(1, column)));
    }
    totals.auc = MeanOfNumbers(areas);
  }
  std::vector<Metric> metrics;
  for (const Entry& entry : kEntries) {
    if (!entry.has(spec_)) continue;
    Metric& metric = metrics.emplace_back(Metric{.name = entry.name, .value = entry.value(totals)});
    if (std::isnan(metric.value)) {
      metric.value = PrintableNumber(metric.value);
      metric.remark = WhyUndefined(metric.name, totals);
    } else if (metric.name == "auc") {
      metric.remark = WhatAucLeavesOut(totals);
    }
  }
  return metrics;
}

std::vector<std::string> MetricNames(const SampleSpec& spec) {
  std::vector<std::string> names;
  for (const Entry& entry : kEntries) {
    if (entry.has(spec)) names.emplace_back(entry.name);
  }
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

  // The number of negative samples before `begin`, which have lower scores than the sample at `begin`.
  double negatives = 0;
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
