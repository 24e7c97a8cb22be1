#include "observe/metrics.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "comm/alone.h"
#include "observe/metric_order.h"

namespace lockstep {
namespace {

// Returns the area under the curve by its definition: the share of pairs of a positive and a negative sample in which
// the positive sample has the greater score. A pair with equal scores counts as half.
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
    for (const int64_t values : {2, 5, 1000}) {  // with few values, many scores are equal
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
  // Returns the metrics of a data set, which is added in batches of 7 samples, by name. `loss` is the loss of each
  // target.
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
  // The 2 columns beyond the 7 classes are padding, and have the greatest values. Class 6 is neither a label nor
  // predicted.
  const at::Tensor predicted = at::tensor({0, 1, 2, 3, 4, 5, 0, 1, 2, 0});
  const at::Tensor target = at::tensor({0, 1, 2, 3, 4, 5, 1, 1, 0, 0});
  at::Tensor output = at::zeros({10, 9});
  output.scatter_(1, target.unsqueeze(1), 4.0);
  output.scatter_(1, predicted.unsqueeze(1), 5.0);
  output.narrow(1, 7, 2).fill_(100);
  output.select(1, 6).fill_(-1);
  // Sample 6 has class 1, whose output is -2. The outputs of the six other classes are greater.
  output[6].narrow(0, 0, 7).copy_(at::tensor({5.F, -2.F, 1.F, 2.F, 3.F, 4.F, -1.F}));
  const auto values = Of({.shape = {3}, .classes = 7}, output, target, 0.25);
  EXPECT_DOUBLE_EQ(values.at("loss"), 0.25);
  EXPECT_DOUBLE_EQ(values.at("accuracy"), 0.8);
  // The numbers of true positives, predictions and labels are 2, 3 and 3 for class 0; 2, 2 and 3 for class 1; 1, 2 and
  // 1 for class 2; and 1, 1 and 1 for each of the classes 3, 4 and 5.
  EXPECT_NEAR(values.at("f1"), (2.0 / 3 + 4.0 / 5 + 2.0 / 3 + 3) / 6, 1e-12);
  EXPECT_FALSE(values.contains("auc"));
  // Samples 6 and 8 are predicted wrongly. The class of sample 8 has the second greatest output, so sample 6 is the
  // only sample whose class is not in the top 5.
  EXPECT_DOUBLE_EQ(values.at("top5"), 0.9);
}

// Outputs and targets of 40 samples. `output` is 2 sin(3.7 i + 1.3 c + 0.9 i c) for sample i and class c, and `target`
// is (i^2 + floor(i / 3)) % classes.
struct Waves {
  explicit Waves(int64_t classes) {
    const at::Tensor i = at::arange(40).unsqueeze(1);
    const at::Tensor c = at::arange(classes);
    output = (2 * at::sin(3.7 * i.to(at::kDouble) + 1.3 * c + 0.9 * i * c)).to(at::kFloat);
    target = (i * i + i.floor_divide(3)).remainder(classes).squeeze(1);
  }
  at::Tensor output, target;
};

// Checks the metrics of four classes against values that were computed with scikit-learn 1.9.1.
TEST_F(MetricsTest, OfFourClassesAreScikitLearns) {
  const Waves waves(4);
  const auto values = Of({.shape = {3}, .classes = 4}, waves.output, waves.target, 0.5);
  EXPECT_NEAR(values.at("log_loss"), 1.8080159194210936, 1e-6);
  EXPECT_NEAR(values.at("balanced_accuracy"), 0.22435897435897437, 1e-12);
  EXPECT_NEAR(values.at("macro_f1"), 0.23392857142857143, 1e-12);
  EXPECT_NEAR(values.at("weighted_f1"), 0.2770238095238095, 1e-12);
  EXPECT_NEAR(values.at("matthews"), 0.013758383209802194, 1e-12);
  EXPECT_NEAR(values.at("quadratic_kappa"), 0.03342366757000903, 1e-12);
  // scikit-learn has no map3, so the expected value was computed by the definition of map3.
  EXPECT_NEAR(values.at("map3"), 0.4875, 1e-12);
  EXPECT_EQ(values.at("f1"), values.at("macro_f1"));
}

TEST_F(MetricsTest, OfTwoClassesAreScikitLearns) {
  const Waves waves(2);
  const auto values = Of({.shape = {3}, .classes = 2}, waves.output, waves.target, 0.5);
  EXPECT_NEAR(values.at("log_loss"), 1.024859403138962, 1e-6);
  EXPECT_NEAR(values.at("balanced_accuracy"), 0.5284900284900285, 1e-12);
  EXPECT_NEAR(values.at("macro_f1"), 0.5099935525467441, 1e-12);
  EXPECT_NEAR(values.at("weighted_f1"), 0.540006447453256, 1e-12);
  EXPECT_NEAR(values.at("matthews"), 0.05337605126836238, 1e-12);
  EXPECT_NEAR(values.at("quadratic_kappa"), 0.05, 1e-12);
  EXPECT_FALSE(values.contains("map3"));
}

TEST_F(MetricsTest, OfOneClassAreDefinedAsScikitLearnDefinesThem) {
  const at::Tensor output = at::tensor({2.F, 1.F}).expand({9, 2});
  const at::Tensor target = at::zeros({9}, at::kLong);
  const auto values = Of({.shape = {3}, .classes = 2}, output, target, 0.5);
  EXPECT_EQ(values.at("matthews"), 0);
  EXPECT_EQ(values.at("balanced_accuracy"), 1);
  EXPECT_TRUE(std::isnan(values.at("quadratic_kappa")));
}

TEST_F(MetricsTest, OfASureMistakeTheLogLossIsFinite) {
  // The expected value is sklearn.metrics.log_loss([0], [[0, 1]], labels=[0, 1]).
  const at::Tensor output = at::tensor({-500.F, 500.F}).view({1, 2});
  const auto values = Of({.shape = {3}, .classes = 2}, output, at::zeros({1}, at::kLong), 1000);
  EXPECT_NEAR(values.at("log_loss"), 36.04365338911715, 1e-9);
}

TEST_F(MetricsTest, OfWeighedTargetsTheLossIsTheirWeightedMean) {
  Metrics metrics({.shape = {3}, .classes = 2}, 4, at::kCPU, *alone_, *alone_);
  const at::Tensor output = at::zeros({2, 2});
  const at::Tensor target = at::zeros({2}, at::kLong);
  metrics.Add(0, output, target, at::full({}, 3.0), at::full({}, 2.5));
  metrics.Add(2, output, target, at::full({}, 4.0), at::full({}, 1.0));
  EXPECT_DOUBLE_EQ(metrics.Finish().front().value, 2);
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
  // No sample has label 1, so label 1 has no auc, and the f1 of label 1 is 0.
  const at::Tensor target = at::tensor({1.F, 0.F, 0.F, 1.F, 0.F, 1.F, 0.F, 0.F, 1.F}).view({3, 3});
  const auto values =
      Of({.shape = {3}, .classes = 3, .task = Task::kMultiLabel}, output, target, 0.1);
  EXPECT_DOUBLE_EQ(values.at("accuracy"), 1.0 / 3);
  EXPECT_DOUBLE_EQ(values.at("label_accuracy"), 7.0 / 9);
  EXPECT_NEAR(values.at("f1"), (1 + 0 + 0.8) / 3, 1e-12);
  EXPECT_NEAR(values.at("auc"), (1 + 0) / 2.0, 1e-12);
  // The expected value is the mean of sklearn.metrics.log_loss over the labels.
  EXPECT_NEAR(values.at("log_loss"), 0.8763224154631789, 1e-6);
}

TEST_F(MetricsTest, OfNumbers) {
  const at::Tensor target = at::arange(20).to(at::kFloat).view({10, 2});
  at::Tensor output = target + 1;
  output[0][0] += 2;
  const auto values =
      Of({.shape = {3}, .classes = 2, .task = Task::kRegression}, output, target, 1.4);
  EXPECT_NEAR(values.at("rmse"), (std::sqrt(18 / 10.0) + 1) / 2, 1e-12);
  EXPECT_NEAR(values.at("mae"), (19 + 3) / 20.0, 1e-12);
}

// Checks r2, rmse and rmsle against values that were computed with scikit-learn 1.9.1. The means of the two columns of
// targets differ by 1 + `apart`.
TEST_F(MetricsTest, OfNumbersAreScikitLearns) {
  const auto values_of = [&](double apart) {
    const at::Tensor i = at::arange(40, at::kDouble).unsqueeze(1);
    const at::Tensor c = at::arange(2, at::kDouble);
    const at::Tensor target = (i * 7).remainder(11) + c + (10 + apart * c);
    const at::Tensor output = target + at::sin(i + c);
    return Of({.shape = {3}, .classes = 2, .task = Task::kRegression}, output.to(at::kFloat),
              target.to(at::kFloat), 1.4);
  };
  const auto near = values_of(0);
  EXPECT_NEAR(near.at("r2"), 0.951293693662412, 1e-9);
  EXPECT_NEAR(near.at("rmsle"), 0.0457592720834581, 1e-9);
  const auto far = values_of(1e6);
  EXPECT_NEAR(far.at("r2"), 0.951359316663154, 1e-9);
  EXPECT_NEAR(far.at("rmse"), 0.7094293480521103, 1e-9);
}

// Checks r2 and rmsle of constant targets. The expected values of r2 are those of scikit-learn's r2_score. If a
// logarithm is undefined, rmsle is NaN, whereas scikit-learn's root_mean_squared_log_error raises an error.
TEST_F(MetricsTest, OfNumbersThatNeverChange) {
  const SampleSpec spec{.shape = {3}, .classes = 1, .task = Task::kRegression};
  const at::Tensor fives = at::full({9, 1}, 5.F);
  EXPECT_EQ(Of(spec, fives, fives, 0).at("r2"), 1);
  EXPECT_EQ(Of(spec, fives + 1, fives, 1).at("r2"), 0);
  EXPECT_TRUE(std::isnan(Of(spec, fives.narrow(0, 0, 1), fives.narrow(0, 0, 1), 0).at("r2")));
  EXPECT_TRUE(std::isnan(Of(spec, fives - 6, fives, 1).at("rmsle")));
}

TEST_F(MetricsTest, OfPixelsLeaveOutThoseWithoutAClass) {
  // The expected iou is sklearn.metrics.jaccard_score([0, 0, 1, 1, 2], [0, 1, 1, 1, 1], average="macro").
  const at::Tensor target = at::tensor({0, 0, 255, 1, 1, 2}, at::kByte).view({1, 2, 3});
  const at::Tensor predicted = at::tensor({0, 1, 2, 1, 1, 1}, at::kLong).view({1, 2, 3});
  // Channel 4 of the output is padding, and class 3 is neither a label nor predicted.
  at::Tensor output = at::zeros({1, 5, 2, 3});
  output.scatter_(1, predicted.unsqueeze(1), 1.0);
  const auto values =
      Of({.shape = {1, 2, 3}, .classes = 4, .task = Task::kSegmentation}, output, target, 2);
  EXPECT_DOUBLE_EQ(values.at("loss"), 2);
  EXPECT_DOUBLE_EQ(values.at("accuracy"), 3.0 / 5);
  EXPECT_DOUBLE_EQ(values.at("iou"), (1.0 / 2 + 2.0 / 4 + 0) / 3);
  // The expected dice is sklearn.metrics.f1_score of the same arguments.
  EXPECT_NEAR(values.at("dice"), 0.4444444444444444, 1e-12);
}

using Json = nlohmann::json;

// Returns the cases of metric_cases.json (metric_cases.py says what they hold).
std::vector<Json> Cases() {
  return Json::parse(std::ifstream("observe/metric_cases.json"))
      .at("cases")
      .get<std::vector<Json>>();
}

// Compares all metrics of unusual samples with scikit-learn's.
class MetricsOfCases : public MetricsTest, public testing::WithParamInterface<Json> {};

TEST_P(MetricsOfCases, AreScikitLearns) {
  static const std::map<std::string, Task> kTasks{{"CLASSIFICATION", Task::kClassification},
                                                  {"MULTI_LABEL", Task::kMultiLabel},
                                                  {"REGRESSION", Task::kRegression},
                                                  {"SEGMENTATION", Task::kSegmentation}};
  const Json& of = GetParam();
  const auto shape = of.at("shape").get<std::vector<int64_t>>();
  SampleSpec spec{.shape = {3}, .classes = shape.at(1), .task = kTasks.at(of.at("task"))};
  at::Tensor output = at::tensor(of.at("output").get<std::vector<float>>()).view(shape);
  at::Tensor target = at::tensor(of.at("target").get<std::vector<float>>());
  if (spec.task == Task::kClassification) {
    target = target.to(at::kLong);
  } else if (spec.task == Task::kSegmentation) {
    spec.shape = {3, shape.at(2), shape.at(3)};
    target = target.to(at::kByte).view({shape.at(0), shape.at(2), shape.at(3)});
  } else {
    target = target.view(shape);
  }
  const auto values = Of(spec, output, target, 0.5);
  for (const auto& [name, expected] : of.at("metrics").items()) {
    ASSERT_TRUE(values.contains(name)) << name;
    const double value = values.at(name);
    if (expected.is_null()) {
      EXPECT_TRUE(std::isnan(value)) << name << " " << value;
      EXPECT_FALSE(std::signbit(value)) << name;
    } else {
      EXPECT_NEAR(value, expected.get<double>(), 1e-9 * std::max(1.0, std::abs(value))) << name;
    }
  }
  // Each metric has a value by scikit-learn, except the loss.
  EXPECT_EQ(values.size(), of.at("metrics").size() + 1);
}

INSTANTIATE_TEST_SUITE_P(All, MetricsOfCases, testing::ValuesIn(Cases()), [](const auto& of) {
  std::string name = of.param.at("name");
  std::erase_if(name, [](unsigned char c) { return c == ',' || c == '-'; });
  std::ranges::replace(name, ' ', '_');
  return name;
});

// Checks which metrics are not defined, which of them leave something out, and what is said of them.
TEST(MetricRemarks, SayWhatIsNotDefinedAndWhatIsLeftOut) {
  const std::unique_ptr<Communicator> alone = MakeAlone(at::kCPU);
  const auto remarks_of = [&](Task task, const at::Tensor& output, const at::Tensor& target) {
    SampleSpec spec{.shape = {3}, .classes = output.size(1), .task = task};
    if (task == Task::kSegmentation) spec.shape = {3, output.size(2), output.size(3)};
    Metrics metrics(spec, target.size(0), at::kCPU, *alone, *alone);
    metrics.Add(0, output, target, at::full({}, 1.0));
    const std::vector<Metric> found = metrics.Finish();
    EXPECT_EQ(MetricsText(found).find("nan"), std::string::npos) << MetricsText(found);
    return MetricRemarks(found);
  };
  using Lines = std::vector<std::string>;
  const at::Tensor ones = at::ones({4}, at::kLong);
  const at::Tensor predicts_one = at::tensor({0.F, 1.F}).expand({4, 2});
  EXPECT_EQ(
      remarks_of(Task::kClassification, predicts_one, ones),
      (Lines{"auc is not defined: all samples are of class 1",
             "quadratic_kappa is not defined: all labels and all predictions are of class 1"}));
  EXPECT_EQ(remarks_of(Task::kClassification, predicts_one, at::arange(4).remainder(2)), Lines{});
  EXPECT_EQ(remarks_of(Task::kClassification, predicts_one / 0, at::arange(4).remainder(2)),
            Lines{"auc, log_loss are not defined: the outputs are not all finite numbers"});

  const at::Tensor outputs = at::arange(12).to(at::kFloat).view({4, 3}) - 5;
  at::Tensor labels = at::arange(12).remainder(2).to(at::kFloat).view({4, 3});
  EXPECT_EQ(remarks_of(Task::kMultiLabel, outputs, labels), Lines{});
  labels.select(1, 1).fill_(0);
  EXPECT_EQ(remarks_of(Task::kMultiLabel, outputs, labels),
            Lines{"auc: label 1 applies to no sample, so the mean is of the other 2 labels"});
  labels.select(1, 2).fill_(1);
  EXPECT_EQ(
      remarks_of(Task::kMultiLabel, outputs, labels),
      Lines{"auc: 2 of 3 labels apply to all samples or to none, the first of them label 1, so "
            "the mean is of the other 1"});
  labels.fill_(1);
  EXPECT_EQ(remarks_of(Task::kMultiLabel, outputs, labels),
            Lines{"auc is not defined: each label applies to all samples or to none"});

  const at::Tensor numbers = at::arange(4).to(at::kFloat).view({4, 1});
  EXPECT_EQ(remarks_of(Task::kRegression, numbers, numbers - 2),
            Lines{"rmsle is not defined: a target or an output is -1 or less"});
  EXPECT_EQ(remarks_of(Task::kRegression, numbers.narrow(0, 0, 1), numbers.narrow(0, 0, 1)),
            Lines{"r2 is not defined: there is a single sample"});
  EXPECT_EQ(remarks_of(Task::kRegression, numbers / 0, numbers),
            Lines{"rmse, mae, r2, rmsle are not defined: the outputs are not all finite numbers"});
  EXPECT_EQ(remarks_of(Task::kSegmentation, at::zeros({1, 2, 2, 2}),
                       at::full({1, 2, 2}, kIgnoredPixel, at::kByte)),
            Lines{"accuracy, iou, dice are not defined: no pixel of the masks has a class"});
}

TEST(MetricOrder, KnowsOfWhichMoreIsBetterAndWhichAreBrief) {
  const std::set<std::string> errors{"loss", "rmse", "mae", "rmsle", "perplexity", "log_loss"};
  std::set<std::string> names;
  for (const Task task : {Task::kClassification, Task::kMultiLabel, Task::kRegression,
                          Task::kLanguage, Task::kSegmentation}) {
    for (const int64_t classes : {2, 9}) {
      const std::vector<std::string> all = MetricNames({.classes = classes, .task = task});
      EXPECT_LE(std::ranges::count_if(all, IsBrief), 5) << "a line of the terminal is short";
      names.insert(all.begin(), all.end());
    }
  }
  for (const std::string& name : names) {
    EXPECT_NE(GreaterIsBetter(name), errors.contains(name)) << name;
    EXPECT_EQ(IsBetter("val_" + name, 2, 1), GreaterIsBetter(name)) << name;
    EXPECT_EQ(IsBriefFigure("val_" + name), IsBrief(name)) << name;
  }
  EXPECT_TRUE(IsBetter("train_loss", 1, 2));
  EXPECT_TRUE(IsBriefFigure("train_loss"));
  EXPECT_EQ(BriefMetricsText({{"loss", 1}, {"log_loss", 2}, {"f1", 0.5}}),
            "loss 1.0000  f1 0.5000");
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
