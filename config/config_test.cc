#include "config/config.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "base/testing/test_files.h"
#include "config/config_differences.h"
#include "config/config_template.h"
#include "config/schema/fields.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

const char kGood[] = "data { train: \"train.csv\" }\n";

class ConfigTest : public testing::Test {
 protected:
  void SetUp() override { WriteTestFile("train.csv", "1,0\n"); }

  static Config Load(const std::string& text, const std::vector<std::string>& assignments = {}) {
    return LoadConfig(WriteTestFile("c.pbtxt", text), assignments);
  }

  // Returns the message of the error that loading the config throws, and checks that the message is one line. Returns
  // "no error" if the config loads.
  static std::string ErrorOf(const std::string& text,
                             const std::vector<std::string>& assignments = {}) {
    try {
      Load(text, assignments);
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), ExitStatus::kUsage);
      EXPECT_THAT(error.what(), Not(HasSubstr("\n")));
      return error.what();
    }
    return "no error";
  }
};

TEST_F(ConfigTest, FillsEveryDefaultAndAnchorsPaths) {
  const Config config = Load(kGood);
  EXPECT_EQ(config.epochs(), 10);
  EXPECT_TRUE(config.optimizer().has_beta2());
  EXPECT_EQ(config.run_dir(), "runs/c");
  EXPECT_EQ(std::filesystem::path(config.data().train(0)),
            std::filesystem::path(testing::TempDir() + "/train.csv").lexically_normal());
}

TEST_F(ConfigTest, ForElsewhereNamesFilesThatMachinesThereHave) {
  const Config config =
      LoadConfigForElsewhere("a/c.pbtxt", "data { train: \"/nowhere/train.csv\" }", {"epochs=3"});
  EXPECT_EQ(config.data().train(0), "/nowhere/train.csv");
  EXPECT_EQ(config.epochs(), 3);
  EXPECT_EQ(config.run_dir(), "runs/c");
  try {
    LoadConfigForElsewhere("a/c.pbtxt", "\n" + std::string(kGood), {});
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), ExitStatus::kUsage);
    EXPECT_THAT(error.what(), HasSubstr("a/c.pbtxt:2:8: data.train: train.csv: the machines"));
  }
}

TEST_F(ConfigTest, WhatIsPrintedLoadsAgainAsTheSame) {
  const Config config =
      Load(std::string(kGood) + "model { name: 'convnet' convnet { channels: [4, 8] } }");
  EXPECT_EQ(PrintConfig(Load(PrintConfig(config))), PrintConfig(config));
  EXPECT_THAT(PrintConfig(config), AllOf(HasSubstr("beta2: 0.999"), HasSubstr("channels: 8")));
}

TEST_F(ConfigTest, TheTemplateHoldsEveryFieldWithItsCommentAndParses) {
  const std::string text = ConfigTemplate();
  EXPECT_THAT(text, HasSubstr("# Samples of one optimizer step, over all ranks and micro-batches.\n"
                              "# Range: at least 1, at most 1000000000.\n"
                              "global_batch: 64\n"));
  EXPECT_THAT(text, HasSubstr("# One of SGD, ADAM, ADAMW, LAMB, LARS.\n  type: ADAMW\n"));
  Config config;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &config));
  EXPECT_EQ(config.optimizer().beta1(), 0.9);
}

TEST_F(ConfigTest, NamesAMissingFile) {
  EXPECT_THROW(LoadConfig("/nowhere/x.pbtxt", {}), Error);
  EXPECT_THAT(ErrorOf("seed: 3\ndata {\n  train: 'nowhere.csv' }"),
              AllOf(HasSubstr("c.pbtxt:3:3: data.train: no such file"), HasSubstr("nowhere.csv")));
  EXPECT_THAT(ErrorOf("seed: 3"), HasSubstr("c.pbtxt: data.train: name at least one file"));
}

TEST_F(ConfigTest, PointsAtSyntax) {
  EXPECT_THAT(ErrorOf("seed: 3\nepochs: }"),
              HasSubstr("c.pbtxt:2:9: field \"epochs\": Expected integer"));
  EXPECT_THAT(ErrorOf("data {\n"), HasSubstr("c.pbtxt:2:1: "));
}

TEST_F(ConfigTest, PointsAtAnUnknownFieldWithTheNearestName) {
  EXPECT_THAT(ErrorOf("optimizer {\n  momentun: 0.9\n}"),
              AllOf(HasSubstr("c.pbtxt:2:"),
                    HasSubstr("Optimizer has no field \"momentun\"; did you mean \"momentum\"?")));
  EXPECT_THAT(ErrorOf("epoch: 3"), AllOf(HasSubstr("did you mean \"epochs\"?"),
                                         Not(HasSubstr("a config looks like this"))));
}

TEST_F(ConfigTest, PointsAtAWrongType) {
  EXPECT_THAT(ErrorOf("epochs: 'many'"),
              HasSubstr("c.pbtxt:1:9: field \"epochs\": Expected integer, got: 'many'"));
  EXPECT_THAT(ErrorOf("model { mlp { hidden: [3, x] } }"),
              HasSubstr("field \"hidden\": Expected integer"));
}

TEST_F(ConfigTest, PointsAtAnUnknownEnumValueWithTheNearestName) {
  EXPECT_THAT(ErrorOf("optimizer { type: ADAMV }"),
              AllOf(HasSubstr("c.pbtxt:1:"),
                    HasSubstr("field \"type\" cannot be \"ADAMV\"; did you mean \"ADAM")));
}

TEST_F(ConfigTest, PointsAtARange) {
  EXPECT_THAT(ErrorOf(std::string(kGood) + "optimizer {\n  lr: -1\n}"),
              HasSubstr("c.pbtxt:3:3: optimizer.lr: -1 is less than 0"));
  EXPECT_THAT(ErrorOf(std::string(kGood) + "optimizer { lr: nan }"),
              HasSubstr("optimizer.lr: nan"));
  EXPECT_THAT(ErrorOf(std::string(kGood) + "optimizer { lr: inf }"),
              HasSubstr("optimizer.lr: inf is not finite"));
  EXPECT_THAT(ErrorOf(std::string(kGood) + "optimizer { beta1: 1 }"),
              HasSubstr("1 is not below 1"));
  EXPECT_THAT(ErrorOf(std::string(kGood) + "schedule { final_fraction: 2 }"),
              HasSubstr("2 is more than 1"));
  EXPECT_THAT(ErrorOf(std::string(kGood) + "model { mlp { hidden: [4, 0] } }"),
              HasSubstr("0 is less than 1"));
}

TEST_F(ConfigTest, RefusesNumbersThatFloat32CannotHold) {
  const std::string pixels = "format: CIFAR10 train: 'train.csv' ";
  struct Case {
    std::string text;   // the config behind its data
    std::string words;  // of the error
    std::string data = "train: 'train.csv'";
  };
  const std::vector<Case> cases{
      {"optimizer { lr: 1e60 }", "optimizer.lr: 1e+60 is too large for float32"},
      {"optimizer { lr: 3.5e38 }", "optimizer.lr: 3.5e+38 is too large for float32"},
      {"optimizer { lr: 1e-60 }", "optimizer.lr: 1e-60 is too near 0 for float32"},
      {"optimizer { lr: 1e-40 }", "optimizer.lr: 1e-40 is too near 0 for float32"},
      {"optimizer { lr: 1e-400 }", "field \"lr\": 1e-400 is too near 0 for float64"},
      {"", "field \"std\": 0.1e-400 is too near 0", pixels + "std: [0.5, 0.1e-400, 0.5]"},
      {"optimizer { clip_value: 1e60 }", "optimizer.clip_value: 1e+60 is too large"},
      {"optimizer { clip_norm: 1e-60 }", "optimizer.clip_norm: 1e-60 is too near 0"},
      {"optimizer { weight_decay: 1e60 }", "optimizer.weight_decay: 1e+60 is too large"},
      {"optimizer { epsilon: 1e-50 }", "optimizer.epsilon: 1e-50 is too near 0"},
      {"optimizer { beta2: 0.9999999999 }", "optimizer.beta2: 0.9999999999 is 1 in float32"},
      {"optimizer { ema_decay: 0.9999999999 }", "optimizer.ema_decay: 0.9999999999 is 1 in"},
      {"optimizer { type: SGD momentum: 0.9999999999 }", "optimizer.momentum: 0.9999999999 is 1"},
      {"global_batch: 64 optimizer { lr: 1e38 lr_scaling: LINEAR scaling_batch: 1 }",
       "optimizer.lr_scaling: lr 1e+38 scaled by global_batch / scaling_batch = 64 / 1: 6.4e+39 "
       "is"},
      {"global_batch: 1 optimizer { lr: 2e-38 lr_scaling: SQUARE_ROOT }",
       "optimizer.lr_scaling: lr 2e-38 scaled by global_batch / scaling_batch = 1 / 256"},
      {"schedule { type: STEP factor: 1e-60 }", "schedule.factor: 1e-60 is too near 0"},
      {"schedule { type: RANGE_TEST first_fraction: 1e-60 }", "schedule.first_fraction: 1e-60 is"},
      {"model { label_smoothing: 1e-60 }", "model.label_smoothing: 1e-60 is too near 0"},
      {"model { mlp { dropout: 0.9999999999 } }", "model.mlp.dropout: 0.9999999999 is 1 in"},
      {"loss { class_weight: [1, 1e60] }", "loss.class_weight: 1e+60 is more than 1e+16"},
      {"loss { class_weight: [1, 1e-60] }", "loss.class_weight: 1e-60 is too near 0"},
      {"loss { class_weight: [0, 0] }", "loss.class_weight: all weights are 0: nothing would"},
      {"loss { type: HUBER delta: 1e60 }", "loss.delta: 1e+60 is too large",
       "train: 'train.csv' task: REGRESSION"},
      {"loss { type: QUANTILE quantile: 0.9999999999 }", "loss.quantile: 0.9999999999 is 1 in",
       "train: 'train.csv' task: REGRESSION"},
      {"loss { positive_weight: 1e60 }", "loss.positive_weight: 1e+60 is more than 1e+16",
       "train: 'train.csv' task: MULTI_LABEL"},
      {"", "data.csv.scale: -1e+60 is too large", "train: 'train.csv' csv { scale: -1e60 }"},
      {"", "data.csv.scale: is 0", "train: 'train.csv' csv { scale: 0 }"},
      {"", "data.mean: nan is not finite", pixels + "mean: nan"},
      {"", "data.mean: inf is not finite", pixels + "mean: inf"},
      {"", "data.mean: 1e+60 is too large", pixels + "mean: [0.5, 1e60, 0.5]"},
      {"", "data.std: 1e-60 is too near 0", pixels + "std: 1e-60"},
      {"", "data.std: mean 20 and std 2e-38 make the pixels' scale",
       pixels + "mean: 20 std: 2e-38"},
      {"", "data.std: mean 3e+38 and std 0.5 make", pixels + "mean: [0, 3e38, 0] std: 0.5"},
      {"", "data.std: mean 0 and std 3e+38 make", pixels + "std: 3e38"},
      {"", "data.augment.hue: 1e-60 is too near 0", pixels + "augment { hue: 1e-60 }"}};
  for (const auto& [text, words, data] : cases) {
    EXPECT_THAT(ErrorOf("data { " + data + " } " + text), HasSubstr(words)) << text << data;
  }
  for (const std::string value : {"1e-400", "-1e-400", ".01e-330"}) {
    EXPECT_THAT(ErrorOf(kGood, {"optimizer.lr=" + value}),
                HasSubstr("--set optimizer.lr=" + value + ": field \"lr\" cannot be " + value));
  }
  EXPECT_THAT(ErrorOf(kGood, {"optimizer.lr=1e60"}),
              HasSubstr("--set optimizer.lr=1e60: optimizer.lr: 1e+60 is too large for float32"));
}

TEST_F(ConfigTest, TakesNumbersThatFloat32Holds) {
  for (const std::string text :
       {"optimizer { lr: 0 }", "optimizer { lr: 0.0 }", "optimizer { lr: 0e-400 } # 1e-400",
        "optimizer { lr: 1.2e-38 }", "optimizer { lr: 3.4e38 }", "optimizer { beta2: 0.9999999 }",
        "loss { class_weight: [0, 1e-30] }", "checkpoint { every_minutes: 1e60 }",
        "early_stopping { min_delta: 1e-60 } ", "watchdog { collective_timeout_s: 1e60 }"}) {
    EXPECT_EQ(ErrorOf("data { train: 'train.csv' validation_fraction: 1e-50 } " + text), "no error")
        << text;
  }
}

// Calls visit(name) for each field of type double in `message`, and below it in messages that are no lists, unless it
// has the mark float64.
template <typename Visit>
void VisitFloat32Fields(const google::protobuf::Descriptor& message, const std::string& prefix,
                        const Visit& visit) {
  for (const auto* field : FieldsOf(message)) {
    if (IsNested(*field)) {
      VisitFloat32Fields(*field->message_type(), prefix + field->name() + ".", visit);
    } else if (field->cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_DOUBLE &&
               !field->options().GetExtension(config::float64)) {
      visit(prefix + field->name());
    }
  }
}

TEST_F(ConfigTest, RefusesThemInEachFieldOfAKernel) {
  int fields = 0;
  VisitFloat32Fields(*Config::descriptor(), "", [&](const std::string& name) {
    ++fields;
    for (const std::string value : {"1e60", "-1e60", "1e-60", "inf", "nan"}) {
      EXPECT_THAT(ErrorOf(kGood, {name + "=" + value}), HasSubstr("--set " + name + "="));
    }
  });
  EXPECT_GT(fields, 25);
}

TEST_F(ConfigTest, PointsAtImpossibleCombinations) {
  const std::string good = kGood;
  EXPECT_THAT(ErrorOf(good + "optimizer { nesterov: true type: SGD }"),
              HasSubstr("needs optimizer.momentum"));
  EXPECT_THAT(ErrorOf(good + "optimizer { momentum: 0.9 }"),
              HasSubstr("optimizer.momentum: has no meaning for ADAMW"));
  EXPECT_THAT(ErrorOf(good + "optimizer { type: SGD beta1: 0.8 }"),
              HasSubstr("no meaning for SGD"));
  EXPECT_THAT(ErrorOf(good + "schedule { final_fraction: 0.5 }"),
              HasSubstr("c.pbtxt:2:12: schedule.final_fraction: has no meaning"));
  EXPECT_THAT(ErrorOf(good + "model { name: 'convnet' mlp { hidden: 3 } }"),
              HasSubstr("c.pbtxt:2:25: model.mlp: has no meaning for the model \"convnet\""));
  EXPECT_THAT(
      ErrorOf("data { train: 'train.csv' validation: 'train.csv' validation_fraction: 0.5 }"),
      HasSubstr("choose one of the two"));
  EXPECT_THAT(ErrorOf("data { format: MNIST train: 'train.csv' }"),
              HasSubstr("MNIST takes two files"));
  EXPECT_THAT(ErrorOf("data { train: 'train.csv' mean: 0.5 }"),
              HasSubstr("for CSV use data.csv.scaling"));
  EXPECT_THAT(ErrorOf("data { format: CIFAR10 train: 'train.csv' csv { header: true } }"),
              HasSubstr("data.csv: has no meaning for format CIFAR10"));
  EXPECT_THAT(ErrorOf("data { format: CIFAR10 train: 'train.csv' classes: 9 }"),
              HasSubstr("ten classes"));
  EXPECT_THAT(ErrorOf("data { train: 'train.csv' csv { delimiter: ', ' } }"),
              HasSubstr("one character"));
  EXPECT_THAT(ErrorOf("data { format: SYNTHETIC classes: 2 }"), HasSubstr("data.input_shape"));
  EXPECT_THAT(ErrorOf("data { format: SYNTHETIC input_shape: 2 }"), HasSubstr("data.classes"));
  EXPECT_THAT(ErrorOf("data { format: SYNTHETIC train: 'train.csv' input_shape: 2 classes: 2 }"),
              HasSubstr("data.train: SYNTHETIC samples come from no file"));
  EXPECT_THAT(ErrorOf("data { train: 'train.csv' task: SEGMENTATION }"),
              HasSubstr("data.task: CSV holds no masks"));
  const std::string masks = "data { format: SYNTHETIC task: SEGMENTATION classes: 2 ";
  EXPECT_THAT(ErrorOf(masks + "input_shape: 2 }"),
              HasSubstr("data.input_shape: images have three"));
  EXPECT_THAT(ErrorOf(masks + "synthetic { kind: TEXTS } input_shape: 2 }"),
              HasSubstr("data.task: SEGMENTATION is for images"));
  EXPECT_THAT(ErrorOf(masks + "synthetic { kind: PIXELS } augment { cutmix: 1 } "
                              "input_shape: 3 input_shape: 4 input_shape: 4 }"),
              HasSubstr("data.augment.cutmix: is for one class of each image"));
  EXPECT_THAT(ErrorOf("data { train: 'train.csv' tokens { length: 8 } }"),
              HasSubstr("data.tokens: has no meaning for format CSV"));
  EXPECT_THAT(ErrorOf(good + "optimizer { type: LAMB shard: true }"),
              HasSubstr("optimizer.shard: does not go with LAMB"));
  EXPECT_THAT(ErrorOf(good + "optimizer { clip_norm: 1 clip_value: 1 }"),
              HasSubstr("optimizer.clip_value: optimizer.clip_norm is given too"));
  EXPECT_THAT(ErrorOf(good + "optimizer { trust: 0.1 }"),
              HasSubstr("optimizer.trust: has no meaning for ADAMW"));
  EXPECT_THAT(ErrorOf(good + "optimizer { scaling_batch: 9 }"),
              HasSubstr("optimizer.scaling_batch: has no meaning"));
  EXPECT_THAT(ErrorOf(good + "schedule { type: COSINE every_steps: 9 }"),
              HasSubstr("schedule.every_steps: has no meaning for a rate of type COSINE"));
  EXPECT_THAT(ErrorOf(good + "schedule { type: PLATEAU }"),
              HasSubstr("PLATEAU follows the validation loss"));
}

TEST_F(ConfigTest, PointsAtImpossibleTables) {
  const auto error_of = [](const std::string& csv, const std::string& data = "") {
    return ErrorOf("data { train: 'train.csv' " + data + "\n csv { " + csv + " } }");
  };
  EXPECT_THAT(error_of("delimiter: '\"'"), HasSubstr("data.csv.delimiter: give one character"));
  EXPECT_THAT(error_of("delimiter: '\\0'"), HasSubstr("data.csv.delimiter: give one character"));
  EXPECT_THAT(error_of("label: 'y'"),
              HasSubstr("c.pbtxt:2:8: data.csv.label: needs data.csv.header: true"));
  EXPECT_THAT(error_of("header: true label: 'y' label_column: 2"),
              HasSubstr("c.pbtxt:2:32: data.csv.label_column: data.csv.label is given too"));
  EXPECT_THAT(error_of("header: true label: ['y', 'z'] label_columns: 2", "task: REGRESSION"),
              HasSubstr("c.pbtxt:2:39: data.csv.label_columns: data.csv.label is given too"));
  EXPECT_THAT(error_of("header: true label: ['y', 'y']", "task: REGRESSION"),
              HasSubstr("data.csv.label: \"y\" twice"));
  EXPECT_THAT(error_of("header: true label: ['y', 'z']"),
              HasSubstr("data.csv.label: CLASSIFICATION has one"));
  EXPECT_THAT(error_of("header: true label: ['y', 'z']", "task: REGRESSION classes: 3"),
              HasSubstr("data.classes: is 3 where data.csv.label names 2: leave it out"));
  EXPECT_THAT(error_of("ignore: ['0', 'Name']"),
              HasSubstr("data.csv.ignore: \"Name\" is no column's number (from 0): names need "
                        "data.csv.header: true"));
  EXPECT_THAT(error_of("category: '-1'"), HasSubstr("data.csv.category: \"-1\" is no column's"));
  EXPECT_THAT(error_of("date: 'Day'"), HasSubstr("data.csv.date: \"Day\" is no column's"));
  EXPECT_THAT(error_of("scaling: STANDARD scale: 2"),
              HasSubstr("data.csv.scale: has no meaning with data.csv.scaling"));
  EXPECT_THAT(error_of("missing_indicator: true"),
              HasSubstr("data.csv.missing_indicator: needs data.csv.missing: MEAN"));
  EXPECT_THAT(error_of("category_min_rows: 5"),
              HasSubstr("data.csv.category_min_rows: needs data.csv.category"));
  EXPECT_THAT(error_of("label_names: true", "task: REGRESSION"),
              HasSubstr("data.csv.label_names: is for CLASSIFICATION"));
  EXPECT_THAT(error_of("classes: 'a'"), HasSubstr("data.csv.classes: needs data.csv.label_names"));
  EXPECT_THAT(error_of("label_names: true classes: ['a', 'a']"),
              HasSubstr("data.csv.classes: \"a\" twice"));
  const auto lacks = HasSubstr(
      "data.csv.column: \"x\" has not what data.csv.missing and scaling need: leave out "
      "data.csv.column");
  EXPECT_THAT(error_of("scaling: STANDARD column { name: 'x' mean: 1 std: 0 }"), lacks);
  EXPECT_THAT(error_of("missing: MEAN column { name: 'x' }"), lacks);
  EXPECT_THAT(error_of("scaling: ROBUST column { name: 'x' mean: 1 std: 2 median: 1 }"), lacks);
  for (const std::string rest : {"median: 1 quantile: [2, 1]", "quantile: [1, 2]"}) {
    EXPECT_THAT(error_of("scaling: QUANTILE column { name: 'x' mean: 1 std: 2 " + rest + " }"),
                lacks);
  }
  // The error gives the column's number, because without a header the columns have no names.
  EXPECT_THAT(error_of("scaling: STANDARD column { mean: 1 std: 2 } column { mean: 1 std: 0 }"),
              HasSubstr("data.csv.column: number 1 of them has not what"));
}

TEST_F(ConfigTest, SaysWhatToWriteInsteadOfAFieldOfEarlierVersions) {
  const std::string text = "data { train: 'train.csv'\n csv { standardize: true } }";
  EXPECT_THAT(ErrorOf(text), HasSubstr("c.pbtxt:2:8: data.csv.standardize is now data.csv.scaling: "
                                       "write scaling: STANDARD where it was true"));
  EXPECT_THAT(ErrorOf(kGood, {"data.csv.standardize=false"}),
              HasSubstr("--set data.csv.standardize=false: data.csv.standardize is now"));
}

TEST_F(ConfigTest, ReadsConfigsOfRunsOfEarlierVersions) {
  const std::string folder = NewFolder();
  const auto scaling_of = [&](const std::string& standardize) {
    WriteFile(folder + "/config.pbtxt",
              "data { train: 'train.csv' input_shape: 1 classes: 2 csv { standardize: " +
                  standardize + " column { mean: 1 std: 2 } } }");
    return LoadRunConfig(folder).data().csv().scaling();
  };
  EXPECT_EQ(scaling_of("true"), config::Csv::STANDARD);
  EXPECT_EQ(scaling_of("false"), config::Csv::NONE);
  EXPECT_THAT(PrintConfig(LoadRunConfig(folder)), Not(HasSubstr("standardize")));
}

TEST_F(ConfigTest, RefusesWhatNoSinkCanDo) {
  const auto error_of = [](const std::string& observe) {
    return ErrorOf("data { train: 'train.csv' }\nobserve { " + observe + " }");
  };
  EXPECT_THAT(error_of("histograms_every_steps: 5"),
              HasSubstr("c.pbtxt:2:11: observe.histograms_every_steps: needs observe.tensorboard"));
  EXPECT_THAT(
      error_of("prometheus_address: 'localhost'"),
      HasSubstr("c.pbtxt:2:11: observe.prometheus_address: \"localhost\" is no IPv4 or IPv6"));
  EXPECT_THAT(error_of("page_address: 'here'"),
              HasSubstr("c.pbtxt:2:11: observe.page_address: \"here\" is no IPv4 or IPv6"));
  EXPECT_THAT(error_of("prometheus_port: 65536"),
              HasSubstr("observe.prometheus_port: 65536 is more"));
  EXPECT_THAT(error_of("prometheus_file: '/etc/hosts'"),
              HasSubstr("c.pbtxt:2:11: observe.prometheus_file: /etc/hosts: the run replaces and "
                        "removes this file"));
  EXPECT_THAT(error_of("stall_s: 0"), HasSubstr("observe.stall_s: 0 is less than 1"));
}

TEST_F(ConfigTest, KeepsListsOfBlocks) {
  const std::string table =
      "data { train: 'train.csv' csv { header: true scaling: STANDARD "
      "column { name: 'b' mean: 0.1 std: 3 } column { name: 'a\\n' category: ['y', 'x'] } } }";
  const Config config = Load(table);
  EXPECT_EQ(PrintConfig(Load(PrintConfig(config))), PrintConfig(config));
  const std::vector<std::string> lines = FieldLines(config);
  const auto line = std::find_if(lines.begin(), lines.end(), [](const std::string& text) {
    return text.starts_with("data.csv.column: ");
  });
  ASSERT_NE(line, lines.end());
  EXPECT_EQ(*line,
            "data.csv.column: name: \"b\" mean: 0.1 std: 3 , "
            "name: \"a\\n\" category: \"y\" category: \"x\" ");
  EXPECT_THAT(ErrorOf(table, {"data.csv.column=[]"}),
              HasSubstr("data.csv.column is a list of blocks: write them into the config"));
}

TEST_F(ConfigTest, SetOverridesAnyField) {
  const Config config =
      Load(std::string(kGood) + "model { mlp { hidden: [1, 2] } }",
           {"optimizer.lr=0.5", "model.mlp.hidden=[7, 8, 9]", "optimizer.type=SGD",
            "run_dir=a\\b\"c's d", "data.shuffle=false", "seed=18446744073709551615"});
  EXPECT_EQ(config.optimizer().lr(), 0.5);
  EXPECT_THAT(config.model().mlp().hidden(), ElementsAre(7, 8, 9));
  EXPECT_EQ(config.optimizer().type(), config::Optimizer::SGD);
  EXPECT_EQ(config.run_dir(), "a\\b\"c's d");
  EXPECT_FALSE(config.data().shuffle());
  EXPECT_EQ(config.seed(), UINT64_MAX);
}

TEST_F(ConfigTest, SetTakesPathsRelativeToTheCurrentFolder) {
  const std::string error = ErrorOf(kGood, {"data.train=[\"x.csv\", \"y.csv\"]"});
  EXPECT_THAT(error, HasSubstr("--set data.train="));
  EXPECT_THAT(error, HasSubstr((std::filesystem::current_path() / "x.csv").string()));
}

TEST_F(ConfigTest, NamesDifferencesAndTheValuesThatAreShort) {
  const Config before = Load(kGood, {"optimizer.lr=0.1"});
  Config now = Load(kGood);
  EXPECT_THAT(Differences(before, now), ElementsAre("optimizer.lr: 0.001 where it was 0.1"));
  now = before;
  for (int i = 0; i < 9; ++i) now.mutable_data()->mutable_csv()->add_column()->set_name("a column");
  EXPECT_THAT(Differences(before, now),
              ElementsAre("data.csv.column: the training files hold other values than they did"));
  now = before;
  for (int i = 0; i < 40; ++i) now.mutable_data()->mutable_csv()->add_ignore("a column");
  EXPECT_THAT(Differences(before, now), ElementsAre("data.csv.ignore: another value than it was"));
}

TEST_F(ConfigTest, AnotherSpellingOfATableIsNoDifference) {
  const auto table = [&](const char* delimiter, const std::vector<std::string>& texts,
                         config::Csv::Decimal decimal) {
    Config config = Load(kGood);
    config::Csv& csv = *config.mutable_data()->mutable_csv();
    csv.set_delimiter(delimiter);
    csv.add_column()->set_decimal(decimal);
    csv.mutable_column()->Add()->mutable_category()->Assign(texts.begin(), texts.end());
    csv.mutable_classes()->Assign(texts.begin(), texts.end());
    return config;
  };
  const Config plain = table(",", {"0.5", "1", "2"}, config::Csv::POINT);
  EXPECT_THAT(Differences(plain, table(";", {"0,50", "1,0", "2,0"}, config::Csv::COMMA)),
              testing::IsEmpty());
  EXPECT_THAT(Differences(plain, table(",", {"0.5", "1", "3"}, config::Csv::POINT)),
              ElementsAre("data.csv.classes: the training files hold other values than they did",
                          "data.csv.column: the training files hold other values than they did"));
  // The texts are in the order of their bytes, on which the inputs of the model depend.
  const std::string order =
      ": the same values are spelled otherwise and so are in another order (02 is before 10, and 2 "
      "is behind it)";
  EXPECT_THAT(Differences(table(",", {"01", "02", "10"}, config::Csv::POINT),
                          table(",", {"1", "10", "2"}, config::Csv::POINT)),
              ElementsAre("data.csv.classes" + order, "data.csv.column" + order));
}

TEST_F(ConfigTest, SetNamesItsMistake) {
  EXPECT_THAT(
      ErrorOf(kGood, {"optimizer.lrr=1"}),
      HasSubstr("--set optimizer.lrr=1: Optimizer has no field \"lrr\"; did you mean \"lr\"?"));
  EXPECT_THAT(ErrorOf(kGood, {"optimizer.lr=x"}),
              HasSubstr("--set optimizer.lr=x: field \"lr\" cannot be x: Expected"));
  EXPECT_THAT(ErrorOf(kGood, {"optimizer.type=ADAMV"}),
              HasSubstr("--set optimizer.type=ADAMV: field \"type\" cannot be \"ADAMV\"; did you "
                        "mean \"ADAM"));
  EXPECT_THAT(ErrorOf(kGood, {"optimizer.lr=-2"}),
              HasSubstr("--set optimizer.lr=-2: optimizer.lr: -2 is less"));
  EXPECT_THAT(ErrorOf(kGood, {"optimizer=1"}), HasSubstr("holds fields"));
  EXPECT_THAT(ErrorOf(kGood, {"optimizer.lr.x=1"}), HasSubstr("lr has no fields"));
  EXPECT_THAT(ErrorOf(kGood, {"lr"}), HasSubstr("no \"=\""));
  EXPECT_THAT(ErrorOf(kGood, {"=1"}), HasSubstr("no field is named"));
  EXPECT_THAT(ErrorOf(kGood, {"model.name=convnet", "model.mlp.hidden=[3]"}),
              HasSubstr("--set model.mlp.hidden=[3]: model.mlp: has no meaning"));
  EXPECT_THAT(ErrorOf(kGood, {"schedule.type=ADAM"}), HasSubstr("cannot be \"ADAM\""));
  EXPECT_THAT(ErrorOf(kGood, {"schedule.type=ADAM"}), Not(HasSubstr("did you mean \"ADAM\"")));
  EXPECT_THAT(ErrorOf(kGood, {"epochs=1 seed: 2"}),
              HasSubstr("field \"epochs\" cannot be 1 seed: 2"));
  EXPECT_THAT(ErrorOf(kGood, {"data.mean=[1] seed: [2]"}), HasSubstr("cannot be"));
}

}  // namespace
}  // namespace lockstep
