#include "observe/metrics.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>
#include <string>

#include "comm/alone.h"
#include "observe/metric_order.h"

namespace lockstep {
namespace {

// The definition, pair by pair.
double AreaByPairs(const at::Tensor& scores, const at::Tensor& truths) {
  double in_order = 0;
  double pairs = 0;
  for (int64_t i = 0; i < scores.numel(); ++i) {
    for (int64_t j = 0; j < scores.numel(); ++j) {
      if (truths[i].item<float>() != 1 || truths[j].item<float>() != 0) continue;
      const float positive = scores[i].item<float>();
      const float negative = scores[j].item<float>();
      in_order += positive > negative ? 1 : positive == negative ? 0.5 : 0;
      ++pairs;
    }
  }
  return in_order / pairs;
}

TEST(AreaUnderCurve, IsTheShareOfPairsInOrder) {
  at::manual_seed(1);
  for (const int64_t samples : {2, 3, 17, 60}) {
    for (const int64_t values : {2, 5, 1000}) {  // few: many are equal
      const at::Tensor scores = at::randint(values, {samples}).to(at::kFloat);
      at::Tensor truths = at::randint(2, {samples}).to(at::kFloat);
      truths[0] = 0;
      truths[1] = 1;
      EXPECT_NEAR(AreaUnderCurve(scores, truths), AreaByPairs(scores, truths), 1e-12);
    }
  }
}

TEST(AreaUnderCurve, IsNotANumberWithoutBothKindsOrWithABadScore) {
  const at::Tensor scores = at::arange(4).to(at::kFloat);
  EXPECT_TRUE(std::isnan(AreaUnderCurve(scores, at::zeros({4}))));
  EXPECT_TRUE(std::isnan(AreaUnderCurve(scores, at::ones({4}))));
  EXPECT_TRUE(std::isnan(AreaUnderCurve(scores / 0 * 0, at::tensor({0.F, 1.F, 0.F, 1.F}))));
}

class MetricsTest : public testing::Test {
 protected:
  // The metrics of a data set that comes in batches of some samples.
  std::map<std::string, double> Of(const SampleSpec& spec, const at::Tensor& output,
                                   const at::Tensor& target, double loss) {
    const int64_t samples = target.size(0);
    Metrics metrics(spec, samples, at::kCPU, *alone_, *alone_);
    for (int64_t first = 0; first < samples; first += 7) {
      const int64_t count = std::min<int64_t>(7, samples - first);
      metrics.Add(first, output.narrow(0, first, count), target.narrow(0, first, count),
                  at::full({}, loss * static_cast<double>(count * spec.targets())));
    }
    std::map<std::string, double> values;
    std::vector<std::string> names;
    for (const Metric& metric : metrics.Finish()) {
      values[metric.name] = metric.value;
      names.push_back(metric.name);
    }
    EXPECT_EQ(names, MetricNames(spec));
    return values;
  }

  std::unique_ptr<Communicator> alone_ = MakeAlone(at::kCPU);
};

TEST_F(MetricsTest, OfClassesIgnorePaddingAndClassesThatNeverOccur) {
  // Columns beyond the 7 classes are padding, and the greatest; class 6 is neither there nor predicted.
  const at::Tensor predicted = at::tensor({0, 1, 2, 3, 4, 5, 0, 1, 2, 0});
  const at::Tensor target = at::tensor({0, 1, 2, 3, 4, 5, 1, 1, 0, 0});
  at::Tensor output = at::zeros({10, 9});
  output.scatter_(1, target.unsqueeze(1), 4.0);
  output.scatter_(1, predicted.unsqueeze(1), 5.0);
  output.narrow(1, 7, 2).fill_(100);
  output.select(1, 6).fill_(-1);
  // Five others are greater than the class of sample 6.
  output[6].narrow(0, 0, 7).copy_(at::tensor({5.F, -2.F, 1.F, 2.F, 3.F, 4.F, -1.F}));
  const auto values = Of({.shape = {3}, .classes = 7}, output, target, 0.25);
  EXPECT_DOUBLE_EQ(values.at("loss"), 0.25);
  EXPECT_DOUBLE_EQ(values.at("accuracy"), 0.8);
  // Class 0: 2 tp of 3 predicted, 3 actual; 1: 2 of 2, 3; 2: 1 of 2, 1; 3, 4, 5 are perfect.
  EXPECT_NEAR(values.at("f1"), (2.0 / 3 + 4.0 / 5 + 2.0 / 3 + 3) / 6, 1e-12);
  EXPECT_FALSE(values.contains("auc"));
  // Sample 8's class is one of the five greatest: it is the second.
  EXPECT_DOUBLE_EQ(values.at("top5"), 0.9);
}

TEST_F(MetricsTest, OfTwoClassesAreThoseOfClassOne) {
  const at::Tensor score = at::tensor({-3.F, 2.F, 1.F, -1.F, 4.F, -2.F, 3.F, 0.5F});
  const at::Tensor target = at::tensor({0, 1, 0, 1, 1, 0, 1, 1});
  const auto values = Of({.shape = {3}, .classes = 2}, at::stack({-score, score}, 1), target, 0.5);
  EXPECT_DOUBLE_EQ(values.at("accuracy"), 6.0 / 8);
  EXPECT_DOUBLE_EQ(values.at("f1"), 2 * 4.0 / (5 + 5));
  EXPECT_NEAR(values.at("auc"), AreaByPairs(score, target.to(at::kFloat)), 1e-12);
}

TEST_F(MetricsTest, OfLabelsAreMeansOverThem) {
  const at::Tensor output =
      at::tensor({1.F, -1.F, 2.F, 3.F, -2.F, 1.F, -1.F, 4.F, 1.F}).view({3, 3});
  // No sample has label 1, so that it has no auc and an f1 of 0.
  const at::Tensor target = at::tensor({1.F, 0.F, 0.F, 1.F, 0.F, 1.F, 0.F, 0.F, 1.F}).view({3, 3});
  const auto values =
      Of({.shape = {3}, .classes = 3, .task = Task::kMultiLabel}, output, target, 0.1);
  EXPECT_DOUBLE_EQ(values.at("accuracy"), 7.0 / 9);
  EXPECT_NEAR(values.at("f1"), (1 + 0 + 0.8) / 3, 1e-12);
  EXPECT_NEAR(values.at("auc"), (1 + 0) / 2.0, 1e-12);
}

TEST_F(MetricsTest, OfNumbers) {
  const at::Tensor target = at::arange(20).to(at::kFloat).view({10, 2});
  at::Tensor output = target + 1;
  output[0][0] += 2;
  const auto values =
      Of({.shape = {3}, .classes = 2, .task = Task::kRegression}, output, target, 1.4);
  EXPECT_NEAR(values.at("rmse"), std::sqrt((19 + 9) / 20.0), 1e-12);
  EXPECT_NEAR(values.at("mae"), (19 + 3) / 20.0, 1e-12);
}

TEST_F(MetricsTest, OfPixelsLeaveOutThoseWithoutAClass) {
  // sklearn.metrics.jaccard_score([0, 0, 1, 1, 2], [0, 1, 1, 1, 1], average="macro")
  const at::Tensor target = at::tensor({0, 0, 255, 1, 1, 2}, at::kByte).view({1, 2, 3});
  const at::Tensor predicted = at::tensor({0, 1, 2, 1, 1, 1}, at::kLong).view({1, 2, 3});
  at::Tensor output =
      at::zeros({1, 5, 2, 3});  // a column that is no class, and a class that never occurs
  output.scatter_(1, predicted.unsqueeze(1), 1.0);
  const auto values =
      Of({.shape = {1, 2, 3}, .classes = 4, .task = Task::kSegmentation}, output, target, 2);
  EXPECT_DOUBLE_EQ(values.at("loss"), 2);
  EXPECT_DOUBLE_EQ(values.at("accuracy"), 3.0 / 5);
  EXPECT_DOUBLE_EQ(values.at("iou"), (1.0 / 2 + 2.0 / 4 + 0) / 3);
}

TEST(MetricNames, AreKnownToMetricOrder) {
  const std::set<std::string> errors{"loss", "rmse", "mae",
                                     "perplexity"};  // of these less is better
  for (const Task task : {Task::kClassification, Task::kMultiLabel, Task::kRegression,
                          Task::kLanguage, Task::kSegmentation}) {
    for (const int64_t classes : {2, 9}) {
      for (const std::string& name : MetricNames({.classes = classes, .task = task})) {
        EXPECT_NE(GreaterIsBetter(name), errors.contains(name)) << name;
      }
    }
  }
}

TEST_F(MetricsTest, OfTokens) {
  const at::Tensor target = at::arange(12).view({3, 4}).remainder(5);
  at::Tensor output = at::zeros({3, 4, 8});
  output.scatter_(2, target.unsqueeze(2), 1.0);
  output[0][0].zero_()[4] = 2;
  const auto values = Of({.shape = {4}, .dtype = at::kLong, .classes = 5, .task = Task::kLanguage},
                         output, target, 2);
  EXPECT_DOUBLE_EQ(values.at("accuracy"), 11.0 / 12);
  EXPECT_NEAR(values.at("perplexity"), std::exp(2), 1e-12);
}

}  // namespace
}  // namespace lockstep
