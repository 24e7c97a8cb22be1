#include "trainer/run/run_start.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/config.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

config::Config ConfigOf(config::Data::Task task, int64_t classes, const std::string& metric) {
  config::Config config;
  config.mutable_data()->set_task(task);
  config.mutable_data()->set_classes(classes);
  config.mutable_early_stopping()->set_metric("loss");
  config.mutable_checkpoint()->set_keep_best(metric);
  return config;
}

// Returns the start from a checkpoint whose manifest has these definitions; 0: an older program wrote it.
RunStart StartOf(int definitions) {
  RunStart start{.checkpoint = Checkpoint{.path = "run", .step = 4}};
  if (definitions > 0) start.manifest.set_metric_definitions(definitions);
  return start;
}

TEST(FollowMetrics, GoesOnWithTheMetricThatARunOfSeveralLabelsBeganWith) {
  for (const int definitions : {0, 1}) {
    config::Config config = ConfigOf(config::Data::MULTI_LABEL, 3, "accuracy");
    config.mutable_early_stopping()->set_metric("accuracy");
    const RunStart start = StartOf(definitions);
    EXPECT_THAT(FollowMetrics(start, config),
                ElementsAre(HasSubstr("early_stopping.metric: accuracy was the share"),
                            HasSubstr("the run goes on with label_accuracy, as it began")));
    EXPECT_EQ(config.checkpoint().keep_best(), "label_accuracy");
    EXPECT_EQ(config.early_stopping().metric(), "label_accuracy");
    EXPECT_EQ(MetricDefinitionsOf(start, config), 1);
  }
}

TEST(FollowMetrics, SaysThatTheRootsOfSeveralColumnsHaveAnotherDefinition) {
  config::Config config = ConfigOf(config::Data::REGRESSION, 2, "rmse");
  EXPECT_THAT(
      FollowMetrics(StartOf(0), config),
      ElementsAre(HasSubstr("checkpoint.keep_best: rmse was the root of the mean over all 2 "
                            "columns when the run began")));
  EXPECT_EQ(config.checkpoint().keep_best(), "rmse");
  EXPECT_EQ(MetricDefinitionsOf(StartOf(0), config), kMetricDefinitions);
}

// The metrics of a run before and after it was resumed, and the line about them.
struct Judged {
  std::string stopped_by, kept_by;
  std::string stops_by, keeps_by;
  std::string line;
  bool counts;  // whether early stopping counts the evaluations before
};

class OtherMetrics : public testing::TestWithParam<Judged> {};

TEST_P(OtherMetrics, BeginAnew) {
  const Judged& judged = GetParam();
  const auto config_of = [](const std::string& stopping, const std::string& best) {
    config::Config config = ConfigOf(config::Data::CLASSIFICATION, 2, best);
    config.mutable_early_stopping()->set_metric(stopping);
    return config;
  };
  RunStart start = StartOf(kMetricDefinitions);
  start.manifest.set_config(PrintConfig(config_of(judged.stopped_by, judged.kept_by)));
  config::Config config = config_of(judged.stops_by, judged.keeps_by);
  const std::vector<std::string> lines = FollowMetrics(start, config);
  if (judged.line.empty()) {
    EXPECT_THAT(lines, IsEmpty());
  } else {
    EXPECT_THAT(lines, ElementsAre(judged.line +
                                   ": the best value and the evaluations since are counted anew"));
  }
  EXPECT_EQ(EvaluationsCount(start, config), judged.counts);
}

INSTANTIATE_TEST_SUITE_P(
    FollowMetrics, OtherMetrics,
    testing::Values(
        Judged{"loss", "loss", "loss", "loss", "", true},
        Judged{"loss", "loss", "auc", "loss", "early_stopping.metric is auc where it was loss",
               false},
        Judged{"loss", "loss", "loss", "auc", "checkpoint.keep_best is auc where it was loss",
               true},
        Judged{"loss", "loss", "auc", "accuracy",
               "early_stopping.metric is auc where it was loss, and checkpoint.keep_best is "
               "accuracy where it was loss",
               false},
        Judged{"", "", "auc", "auc", "", false}, Judged{"auc", "auc", "", "", "", false}));

TEST(EvaluationsCount, OnlyOverTheSameSamplesAndByTheSameLoss) {
  const auto expect = [](const std::string& metric, bool validates_anew,
                         const std::vector<std::string>& differences, bool losses_count,
                         const std::string& line) {
    config::Config config = ConfigOf(config::Data::CLASSIFICATION, 2, "");
    config.mutable_early_stopping()->set_metric(metric);
    RunStart start = StartOf(kMetricDefinitions);
    start.manifest.set_config(PrintConfig(config));
    start.validates_anew = validates_anew;
    start.differences = differences;
    EXPECT_EQ(LossesCount(start), losses_count);
    EXPECT_EQ(EvaluationsCount(start, config), line.empty());
    const std::vector<std::string> lines = FollowMetrics(start, config);
    EXPECT_EQ(lines.empty() ? "" : lines.front().substr(0, lines.front().find(':')), line);
  };
  expect("loss", false, {"global_batch: 8 where it was 4"}, true, "");
  expect("loss", true, {}, false, "early_stopping.metric loss is of other validation samples");
  expect("auc", true, {}, false, "early_stopping.metric auc is of other validation samples");
  expect("loss", false, {"loss.type: FOCAL where it was CROSS_ENTROPY"}, false,
         "early_stopping.metric loss is by another loss");
  expect("auc", false, {"loss.type: FOCAL where it was CROSS_ENTROPY"}, false, "");
}

TEST(FollowMetrics, LeavesOtherRunsAlone) {
  const auto says_nothing = [](const RunStart& start, config::Config config) {
    const std::string metric = config.checkpoint().keep_best();
    EXPECT_THAT(FollowMetrics(start, config), IsEmpty());
    EXPECT_EQ(config.checkpoint().keep_best(), metric);
    EXPECT_EQ(MetricDefinitionsOf(start, config),
              config.data().task() == config::Data::MULTI_LABEL && start.checkpoint
                  ? start.manifest.metric_definitions()
                  : kMetricDefinitions);
  };
  says_nothing({}, ConfigOf(config::Data::MULTI_LABEL, 3, "accuracy"));
  says_nothing(StartOf(kMetricDefinitions), ConfigOf(config::Data::MULTI_LABEL, 3, "accuracy"));
  says_nothing(StartOf(0), ConfigOf(config::Data::MULTI_LABEL, 3, "f1"));
  says_nothing(StartOf(0), ConfigOf(config::Data::CLASSIFICATION, 3, "accuracy"));
  says_nothing(StartOf(0), ConfigOf(config::Data::REGRESSION, 1, "rmse"));
  says_nothing(StartOf(0), ConfigOf(config::Data::REGRESSION, 2, "mae"));
}

}  // namespace
}  // namespace lockstep
