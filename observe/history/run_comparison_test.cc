#include "observe/history/run_comparison.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/testing/test_files.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::string Eval(int64_t step, double loss, double accuracy) {
  return fmt::format(R"({{"event":"eval","step":{},"epoch":1,"val_loss":{},"val_accuracy":{}}})"
                     "\n",
                     step, loss, accuracy);
}

RunHistory RunOf(const std::string& config, const std::string& log,
                 RunLog::Keep keep = RunLog::Keep::kLastStep) {
  const std::string run = NewFolder();
  WriteFile(run + "/config.pbtxt", config);
  WriteFile(run + "/log.jsonl", log);
  return RunHistory(run, keep);
}

TEST(RunComparison, SetsMetricsSideBySide) {
  const RunHistory a = RunOf("", Eval(10, 3, 0.1) + Eval(20, 2, 0.4) + Eval(30, 2.5, 0.3));
  const RunHistory b = RunOf("", R"({"event":"epoch","step":10,"epoch":1,"train_loss":5})"
                                 "\n" +
                                     Eval(10, 4, 0.2) + Eval(15, 1, 0.9) + Eval(20, 3, 0.3) +
                                     Eval(30, 2, 0.5) + Eval(40, 1.5, 0.6));
  const std::vector<MetricComparison> metrics = CompareMetrics({{&a}, {&b}}, 2);
  ASSERT_EQ(metrics.size(), 3);
  EXPECT_EQ(metrics[0].name, "train_loss");
  EXPECT_THAT(metrics[0].steps, IsEmpty());
  EXPECT_TRUE(std::isnan(metrics[0].last[0]));
  EXPECT_EQ(metrics[0].last[1], 5);
  EXPECT_EQ(metrics[1].name, "val_loss");
  EXPECT_THAT(metrics[1].steps, ElementsAre(20, 30));
  EXPECT_THAT(metrics[1].at_step, ElementsAre(ElementsAre(2, 3), ElementsAre(2.5, 2)));
  EXPECT_THAT(metrics[1].last, ElementsAre(2.5, 1.5));
  EXPECT_THAT(metrics[1].last_step, ElementsAre(30, 40));
  EXPECT_THAT(metrics[1].best, ElementsAre(2, 1));
  EXPECT_THAT(metrics[1].best_step, ElementsAre(20, 15));
  EXPECT_EQ(metrics[2].name, "val_accuracy");
  EXPECT_THAT(metrics[2].best, ElementsAre(0.4, 0.9));
}

TEST(RunComparison, TakesTheFirstOfEqualValues) {
  const std::string bad = R"({"event":"eval","step":5,"epoch":1,"val_loss":null})"
                          "\n";
  const RunHistory run = RunOf("", bad + Eval(10, 2, 0.4) + Eval(20, 2, 0.4) + Eval(30, 3, 0.1));
  const std::vector<MetricComparison> metrics = CompareMetrics({{&run}, {&run}}, 2);
  EXPECT_THAT(metrics[0].best, ElementsAre(2, 2));
  EXPECT_THAT(metrics[0].best_step, ElementsAre(10, 10));
  EXPECT_THAT(metrics[1].best_step, ElementsAre(10, 10));
}

TEST(RunComparison, HasNoBestOfARunWithoutNumbers) {
  const RunHistory run = RunOf("", R"({"event":"eval","step":5,"epoch":1,"val_loss":null})"
                                   "\n");
  const std::vector<MetricComparison> metrics = CompareMetrics({{&run}, {&run}}, 2);
  EXPECT_TRUE(std::isnan(metrics[0].best[0]));
  EXPECT_EQ(metrics[0].best_step[0], 0);
}

TEST(RunComparison, KeepsTheLastValueOfARunThatDiverges) {
  const RunHistory a = RunOf("", Eval(10, 3, 0.1) + Eval(20, 2, 0.4));
  const RunHistory b =
      RunOf("", Eval(10, 4, 0.2) + R"({"event":"eval","step":20,"epoch":2,"val_loss":null})"
                                   "\n");
  const std::vector<MetricComparison> metrics = CompareMetrics({{&a}, {&b}}, 2);
  EXPECT_EQ(metrics[0].name, "val_loss");
  EXPECT_THAT(metrics[0].steps, ElementsAre(10, 20));
  EXPECT_TRUE(std::isnan(metrics[0].last[1]));
  EXPECT_THAT(metrics[0].last_step, ElementsAre(20, 20));
  EXPECT_THAT(metrics[0].best, ElementsAre(2, 4));
}

std::string Steps(const std::vector<double>& losses) {
  std::string log;
  for (size_t i = 0; i < losses.size(); ++i) {
    log += fmt::format(R"({{"event":"step","step":{},"loss":{}}})", i + 1,
                       std::isnan(losses[i]) ? "null" : fmt::format("{}", losses[i])) +
           '\n';
  }
  return log;
}

TEST(RunComparison, SetsMeansOfLossesSideBySide) {
  const RunHistory a = RunOf("", Steps({8, 6, 4, 2, 1}), RunLog::Keep::kAllSteps);
  const RunHistory b = RunOf("", Steps({9, 7, NAN, 5, 3, 3, 3}), RunLog::Keep::kAllSteps);
  const MetricComparison losses = CompareLosses({{&a}, {&b}}, 2);
  EXPECT_EQ(losses.name, "loss");
  EXPECT_THAT(losses.steps, ElementsAre(2, 5));
  EXPECT_THAT(losses.at_step, ElementsAre(ElementsAre(7, 8), ElementsAre(7.0 / 3, 4)));
  EXPECT_THAT(losses.last, ElementsAre(1, 3));
  EXPECT_THAT(losses.last_step, ElementsAre(5, 7));
  EXPECT_THAT(CompareLosses({{&a}, {&b}}, 9).steps, ElementsAre(1, 2, 3, 4, 5));
  const RunHistory none = RunOf("", "", RunLog::Keep::kAllSteps);
  EXPECT_THAT(CompareLosses({{&a}, {&none}}, 2).steps, IsEmpty());
  EXPECT_TRUE(std::isnan(CompareLosses({{&a}, {&none}}, 2).last[1]));
}

TEST(RunComparison, NamesTheFieldsThatDiffer) {
  const RunHistory a = RunOf(
      R"(run_dir: "a" optimizer { lr: 0.1 } loader { threads: 2 } data { csv { column { mean: 1 } } })",
      "");
  const RunHistory b =
      RunOf(R"(run_dir: "b" optimizer { lr: 0.2 } data { csv { column { mean: 2 } } })", "");
  const std::vector<FieldDifference> differences = ConfigDifferences({{&a}, {&b}, {&a}});
  ASSERT_EQ(differences.size(), 2);
  EXPECT_EQ(differences[0].field, "loader.threads");
  EXPECT_THAT(differences[0].values, ElementsAre("2", "not set", "2"));
  EXPECT_EQ(differences[1].field, "optimizer.lr");
  EXPECT_THAT(differences[1].values, ElementsAre("0.1", "0.2", "0.1"));
  EXPECT_THAT(ConfigDifferences({{&a}, {&a}}), IsEmpty());
  const RunHistory unknown = RunOf("of_tomorrow: 1", "");
  EXPECT_THAT(ConfigDifferences({{&a}, {&unknown}}), IsEmpty());
}

TEST(RunComparison, TakesTheMeanOfFolds) {
  const RunHistory a = RunOf("", Eval(10, 1, 0.2) + Eval(20, 2, 0.3));
  const RunHistory b = RunOf("data { folds { count: 3 } }", Eval(11, 3, 0.6) + Eval(21, 1, 0.7));
  const RunHistory c = RunOf("data { folds { count: 3 fold: 1 } }", Eval(9, 5, 0.8));
  const RunHistory waiting = RunOf("", "");
  const ComparedRuns folds{&b, &c, &waiting};
  const std::vector<MetricComparison> metrics = CompareMetrics({{&a}, folds}, 5);
  ASSERT_EQ(metrics.size(), 2);
  EXPECT_EQ(metrics[0].name, "val_loss");
  EXPECT_THAT(metrics[0].steps, ElementsAre(10));
  EXPECT_THAT(metrics[0].at_step, ElementsAre(ElementsAre(1, 4)));
  EXPECT_THAT(metrics[0].last, ElementsAre(2, 3));  // of 1 and 5
  EXPECT_THAT(metrics[0].last_step, ElementsAre(20, 21));
  EXPECT_THAT(metrics[0].best, ElementsAre(1, 3));
  EXPECT_TRUE(std::isnan(metrics[0].best_deviation[0]));
  EXPECT_DOUBLE_EQ(metrics[0].best_deviation[1], std::sqrt(8));
  EXPECT_DOUBLE_EQ(metrics[1].best[1], 0.75);
  EXPECT_THAT(ConfigDifferences({folds, {&c, &b}}), IsEmpty());
  const RunHistory d = RunOf("", Steps({4, 2}) + Eval(2, 1, 0), RunLog::Keep::kAllSteps);
  const RunHistory e = RunOf("", Steps({8, 6, 9}) + Eval(3, 1, 0), RunLog::Keep::kAllSteps);
  const MetricComparison losses = CompareLosses({{&d, &e, &waiting}, {&e}}, 2);
  EXPECT_THAT(losses.steps, ElementsAre(1, 2));
  EXPECT_THAT(losses.at_step, ElementsAre(ElementsAre(6, 8), ElementsAre(4, 6)));
  EXPECT_THAT(losses.last, ElementsAre(5.5, 9));
}

}  // namespace
}  // namespace lockstep
