#include "ckpt/weights.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "base/files/safetensors.h"
#include "base/testing/message_of.h"
#include "base/testing/test_files.h"
#include "ckpt/saver.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

using testing::HasSubstr;

std::string ErrorOfReading(const std::string& source) {
  return MessageOf(ExitStatus::kCheckpoint, [&] { ReadWeights(source); });
}

// Writes a checkpoint whose weight "w" has the shape [2, 2] and is filled with `value`. During training, its average
// has one row more, which is padding.
void Save(const std::string& run, int64_t step, float value, bool averages = false,
          bool in_pieces = false, const checkpoint::Manifest& facts = {}) {
  Saver saver(at::kCPU, {.run_dir = run, .attempt = "a", .retention = {.newest = 9}});
  const at::Tensor whole = at::full({3, 2}, value);
  const at::Tensor average = at::full({3, 2}, 10 * value);
  StateTree state;
  state.BeginPart("optimizer", 1);
  if (averages && !in_pieces) state.Add("average.w", average);
  if (in_pieces) state.AddPiece("average.w", average.flatten(), 0, whole);
  saver.Save(step, {{"w", whole.narrow(0, 0, 2)}, {"count", at::full({}, step, at::kLong)}}, state,
             {}, facts);
  saver.Release(step);
  saver.Wait();
  ASSERT_EQ(saver.TakeOutcome()->error, "");
}

float ValueOf(const std::string& source) {
  const at::Tensor w = ReadWeights(source).tensors.at("w");
  EXPECT_EQ(w.sizes(), (std::vector<int64_t>{2, 2}));
  EXPECT_TRUE(at::equal(w, at::full_like(w, w[0][0].item<float>())));
  return w[0][0].item<float>();
}

TEST(Weights, AreTheFinalOnesOrTheNewest) {
  const std::string run = NewFolder();
  Save(run, 5, 0.5);
  Save(run, 6, 0.6F);
  EXPECT_EQ(ValueOf(run), 0.6F);
  EXPECT_EQ(ValueOf(run + "@5"), 0.5F);
  WriteSafetensors(RunWeightsPath(run), {{"w", at::full({2, 2}, 7.F)}}, {});
  EXPECT_EQ(ValueOf(run), 7);
  EXPECT_EQ(ValueOf(RunWeightsPath(run)), 7);
  EXPECT_EQ(ValueOf(run + "@6"), 0.6F);
  EXPECT_EQ(ReadWeights(run + "@6").path, FindCheckpoint(run).path);
  // Simulates a run that is continued after its end: the final weights are those of step 6, and then a checkpoint of
  // step 7 is saved.
  WriteSafetensors(RunWeightsPath(run), {{"w", at::full({2, 2}, 7.F)}}, {{kStepOfWeights, "6"}});
  EXPECT_EQ(ValueOf(run), 7);
  Save(run, 7, 0.75);
  EXPECT_EQ(ValueOf(run), 0.75);
}

// Returns manifest fields of a run that keeps the checkpoint with the best value of `metric`.
checkpoint::Manifest Evaluated(int64_t step, const std::string& metric, double value) {
  checkpoint::Manifest facts;
  facts.set_best_metric(metric);
  facts.set_greater_is_better(metric != "loss");
  facts.set_metric_step(step);
  checkpoint::Metric& one = *facts.add_metric();
  one.set_name(metric);
  one.set_value(value);
  return facts;
}

TEST(Weights, AreTheBest) {
  for (const std::string metric : {"accuracy", "loss"}) {
    const std::string run = NewFolder();
    const double sign = metric == "loss" ? -1 : 1;
    const auto save = [&](int64_t step, double score, int64_t evaluated) {
      const auto value = static_cast<float>(step) / 10;
      Save(run, step, value, false, false, Evaluated(evaluated, metric, sign * score));
    };
    save(5, 0.8, 5);
    save(6, 0.9, 6);
    save(7, 0.9, 7);   // the same score as step 6, but later
    save(8, 0.95, 7);  // not evaluated at its own step, so not the best
    save(9, NAN, 9);
    WriteSafetensors(RunWeightsPath(run), {{"w", at::full({2, 2}, 7.F)}}, {{kStepOfWeights, "9"}});
    EXPECT_EQ(BestCheckpoint(run)->step, 6);
    EXPECT_EQ(ValueOf(run), 0.6F);
    EXPECT_EQ(ValueOf(run + "@best"), 0.6F);
    EXPECT_THAT(ReadWeights(run).Name(), testing::EndsWith("000006, the best " + metric));
    EXPECT_EQ(ValueOf(run + "@last"), 7);
    EXPECT_EQ(ValueOf(run + "@5"), 0.5F);
    EXPECT_EQ(FindCheckpoint(run).step, 9);
    EXPECT_EQ(FindCheckpoint(run + "@best").step, 6);
    // A checkpoint whose manifest is damaged cannot be the best.
    std::ofstream(CheckpointOf(run, 6).path + "/manifest.pb") << "x";
    EXPECT_EQ(BestCheckpoint(run)->step, 7);
  }
  const std::string run = NewFolder();
  Save(run, 5, 0.5);
  EXPECT_FALSE(BestCheckpoint(run));
  EXPECT_THAT(ErrorOfReading(run + "@best"),
              HasSubstr("train with checkpoint.keep_best, or name a step: 5"));
  EXPECT_THAT(ErrorOfReading(run + "@bets"), HasSubstr("@bets: no run"));
}

// Checks the best checkpoint of a run of several labels that an older program began, whose accuracy was the share of
// right labels, and that today's program continued.
TEST(Weights, AreTheBestByTheMetricThatARunBeganWith) {
  const auto evaluated = [](int64_t step, const std::string& config, int definitions) {
    checkpoint::Manifest facts = Evaluated(step, "accuracy", 1 - 0.01 * static_cast<double>(step));
    facts.set_config(config);
    if (definitions > 0) facts.set_metric_definitions(definitions);
    return facts;
  };
  const std::string labels = "data {\n  train: \"a.csv\"\n  task: MULTI_LABEL\n}\n";
  const std::string older = NewFolder();
  Save(older, 5, 0.5, false, false, evaluated(5, labels, 0));
  checkpoint::Manifest continued = evaluated(6, labels, 1);
  continued.set_best_metric("label_accuracy");
  checkpoint::Metric& metric = *continued.add_metric();
  metric.set_name("label_accuracy");
  metric.set_value(0.97);
  Save(older, 6, 0.6F, false, false, continued);
  EXPECT_EQ(BestCheckpoint(older)->step, 6);
  EXPECT_THAT(ReadWeights(older).Name(), testing::EndsWith("6, the best label_accuracy"));
  EXPECT_EQ(ReadManifest(CheckpointOf(older, 5)).metric(0).name(), "label_accuracy");
  EXPECT_EQ(ReadManifest(CheckpointOf(older, 6)).metric(0).name(), "accuracy");

  // Other runs are left as they are: those that began today, and those of other tasks.
  const std::string other = NewFolder();
  Save(other, 1, 1, false, false, evaluated(1, labels, kMetricDefinitions));
  Save(other, 2, 1, false, false, evaluated(2, "data {\n  task: CLASSIFICATION\n}\n", 0));
  Save(other, 3, 1, false, false, evaluated(3, "run_dir: \"task: MULTI_LABEL\"\n", 0));
  for (const int64_t step : {1, 2, 3}) {
    EXPECT_EQ(ReadManifest(CheckpointOf(other, step)).metric(0).name(), "accuracy");
    EXPECT_EQ(ReadManifest(CheckpointOf(other, step)).best_metric(), "accuracy");
  }
}

TEST(Weights, AreTheAveragesWhereThereAreSome) {
  const std::string run = NewFolder();
  Save(run, 5, 0.5, /*averages=*/true);
  EXPECT_EQ(ValueOf(run), 5);
}

TEST(Weights, RefusesAveragesInPieces) {
  const std::string run = NewFolder();
  Save(run, 5, 0.5, /*averages=*/true, /*in_pieces=*/true);
  EXPECT_THAT(ErrorOfReading(run), HasSubstr("averages lie in pieces of 1 ranks"));
}

TEST(Weights, ARunsNameMayHoldAnAt) {
  const std::string run = NewFolder() + "/a@3";
  fs::create_directory(run);
  Save(run, 5, 0.5);
  EXPECT_EQ(ValueOf(run), 0.5F);
  EXPECT_EQ(ValueOf(run + "@5"), 0.5F);
}

TEST(Weights, NamesWhatIsNotThere) {
  const std::string run = NewFolder();
  EXPECT_THAT(ErrorOfReading("/nowhere"), HasSubstr("/nowhere: no run with checkpoints"));
  EXPECT_THAT(ErrorOfReading(run), HasSubstr("no run with checkpoints"));
  EXPECT_THAT(ErrorOfReading(run + "@x"), HasSubstr("@x: no run"));
  Save(run, 5, 0.5);
  Save(run, 6, 0.5);
  EXPECT_THAT(ErrorOfReading(run + "@7"), HasSubstr("no checkpoint of step 7 (there are 6, 5)"));
}

TEST(Weights, RefusesADamagedCheckpoint) {
  const std::string run = NewFolder();
  Save(run, 5, 0.5);
  std::ofstream(ModelFile(FindCheckpoint(run)), std::ios::app) << "x";
  EXPECT_THAT(ErrorOfReading(run), HasSubstr("model.safetensors: has "));
}

TEST(Weights, MeansAreOfFloatingPointTensors) {
  const std::string run = NewFolder();
  Save(run, 5, 0.5);
  Save(run, 6, 1.5);
  const TensorsByName mean = MeanOf({ReadWeights(run + "@5"), ReadWeights(run + "@6")});
  EXPECT_TRUE(at::equal(mean.at("w"), at::ones({2, 2})));
  EXPECT_EQ(mean.at("count").item<int64_t>(), 6);
}

TEST(Weights, MeansAreOfOneModel) {
  const at::Tensor w = at::ones({2});
  const Weights one{.path = "one", .tensors = {{"w", w}}};
  const auto error_with = [&](const TensorsByName& tensors) {
    return MessageOf(ExitStatus::kCheckpoint,
                     [&] { MeanOf({one, {.path = "two", .tensors = tensors}}); });
  };
  EXPECT_THAT(error_with({{"v", w}}), HasSubstr("one: w is not what it is in two"));
  EXPECT_THAT(error_with({{"w", at::ones({3})}}), HasSubstr("one: w is not what"));
  EXPECT_THAT(error_with({{"w", w.to(at::kHalf)}}), HasSubstr("one: w is not what"));
  EXPECT_THAT(error_with({{"w", w}, {"v", w}}), HasSubstr("one: has 1 tensors where two has 2"));
  const auto mean_of_graphs = [&](const std::string& first, const std::string& second) {
    return MeanOf({{.path = "one", .graph = first, .tensors = one.tensors},
                   {.path = "two", .graph = second, .tensors = one.tensors}});
  };
  EXPECT_THAT(MessageOf(ExitStatus::kCheckpoint, [&] { mean_of_graphs("code=1", "code=2"); }),
              HasSubstr("one: were trained in another graph than two"));
  EXPECT_TRUE(at::equal(mean_of_graphs("code=1", "code=1").at("w"), w));
  EXPECT_TRUE(at::equal(mean_of_graphs("", "code=1").at("w"), w));  // an older run names no graph
}

}  // namespace
}  // namespace lockstep
