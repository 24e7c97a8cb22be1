#include "trainer/run/early_stopping.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

namespace lockstep {
namespace {

config::EarlyStopping Config(const std::string& metric, int patience, double min_delta = 0) {
  config::EarlyStopping config;
  config.set_metric(metric);
  config.set_patience(patience);
  config.set_min_delta(min_delta);
  return config;
}

// Returns the epoch, counted from 1, after which a run ends whose metric has `values` in its epochs; 0: the run does
// not end early.
int64_t EndsAfter(const config::EarlyStopping& config, const std::vector<double>& values) {
  EarlyStopping stopping(config);
  for (size_t i = 0; i < values.size(); ++i) {
    const auto epoch = static_cast<int64_t>(i) + 1;
    stopping.OnEvaluation({{"other", 0}, {config.metric(), values[i]}}, epoch);
    EXPECT_EQ(stopping.why().empty(), !stopping.is_over());
    if (stopping.is_over()) return epoch;
  }
  return 0;
}

TEST(EarlyStopping, WaitsForABetterValue) {
  EXPECT_EQ(EndsAfter(Config("auc", 2), {0.5, 0.6, 0.6, 0.7, 0.6, 0.7, 0.9}), 6);
  EXPECT_EQ(EndsAfter(Config("loss", 2), {0.5, 0.6, 0.4, 0.5, 0.3, 0.2}), 0);
  EXPECT_EQ(EndsAfter(Config("loss", 1), {0.5, 0.6, 0.4}), 2);
}

TEST(EarlyStopping, WantsMinDelta) {
  EXPECT_EQ(EndsAfter(Config("auc", 2, 0.05), {0.5, 0.54, 0.56, 0.6, 0.6}), 5);
  EXPECT_EQ(EndsAfter(Config("loss", 1, 0.1), {0.5, 0.35, 0.3}), 3);
}

TEST(EarlyStopping, TakesNoNumberForNoImprovement) {
  EXPECT_EQ(EndsAfter(Config("loss", 2), {NAN, 0.5, NAN, NAN}), 4);
  EXPECT_EQ(EndsAfter(Config("loss", 2), {NAN, NAN}), 2);
}

TEST(EarlyStopping, ForgetsWhatAnotherMetricWas) {
  const config::EarlyStopping config = Config("auc", 2);
  EarlyStopping stopping(config);
  for (const int64_t epoch : {1, 2}) stopping.OnEvaluation({{"auc", 5}}, epoch);
  stopping.BeginAnew();
  for (const int64_t epoch : {3, 4}) stopping.OnEvaluation({{"auc", 0.5}}, epoch);
  EXPECT_FALSE(stopping.is_over());
  stopping.OnEvaluation({{"auc", 0.5}}, 5);
  EXPECT_EQ(stopping.why(), "auc has not become better since epoch 3 (0.5000), in 2 evaluations");
}

TEST(EarlyStopping, NeverEndsWithoutAMetric) { EXPECT_EQ(EndsAfter(Config("", 1), {1, 1, 1}), 0); }

TEST(EarlyStopping, SaysWhy) {
  const auto why = [](double min_delta) {
    const config::EarlyStopping config = Config("auc", 1, min_delta);
    EarlyStopping stopping(config);
    stopping.OnEvaluation({{"auc", 0.75}}, 3);
    EXPECT_EQ(stopping.why(), "");
    stopping.OnEvaluation({{"auc", 0.5}}, 4);
    return stopping.why();
  };
  EXPECT_EQ(why(0), "auc has not become better since epoch 3 (0.7500), in 1 evaluation");
  EXPECT_EQ(why(0.1),
            "auc has not become better by more than 0.1 since epoch 3 (0.7500), in 1 evaluation");
}

}  // namespace
}  // namespace lockstep
