#include "config/edit_config.h"

#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "config/read_config.h"

namespace lockstep {
namespace {

std::string Edited(const std::string& text) {
  return EditedConfig("train.pbtxt", text, {{"optimizer.lr", "0.02", "was 0.1"}});
}

TEST(EditedConfig, ReplacesAValueWhereItStands) {
  EXPECT_EQ(Edited("# mine\noptimizer {\n  type: SGD  # plain\n  lr: 0.1  # a guess\n}\nseed: 3\n"),
            "# mine\noptimizer {\n  type: SGD  # plain\n  # was 0.1\n  lr: 0.02  # a "
            "guess\n}\nseed: 3\n");
  EXPECT_EQ(Edited("optimizer { lr:0.1 type: SGD }"),
            "# was 0.1\noptimizer { lr: 0.02 type: SGD }");
  EXPECT_EQ(Edited("optimizer: <\n\tlr : 1e-1;\n>\n"),
            "optimizer: <\n\t# was 0.1\n\tlr: 0.02\n>\n");
  // A comment and a string that look like the field stay unchanged, and characters of several bytes before the field do
  // not shift the edit.
  EXPECT_EQ(Edited("run_dir: \"optimizer { lr: 1 }\" # lr: 3\noptimizer { lr: 0.1 }\n"),
            "run_dir: \"optimizer { lr: 1 }\" # lr: 3\n# was 0.1\noptimizer { lr: 0.02 }\n");
  EXPECT_EQ(Edited("run_dir: \"\xc3\xa9t\xc3\xa9\"\toptimizer {\tlr: 0.1 }"),
            "# was 0.1\nrun_dir: \"\xc3\xa9t\xc3\xa9\"\toptimizer {\tlr: 0.02 }");
}

TEST(EditedConfig, AddsWhatIsMissing) {
  EXPECT_EQ(Edited(""), "# was 0.1\noptimizer { lr: 0.02 }\n");
  EXPECT_EQ(Edited("seed: 3"), "seed: 3\n# was 0.1\noptimizer { lr: 0.02 }\n");
  EXPECT_EQ(Edited("optimizer { type: SGD }\n"), "# was 0.1\noptimizer { lr: 0.02 type: SGD }\n");
  EXPECT_EQ(Edited("optimizer {}\n"), "# was 0.1\noptimizer { lr: 0.02}\n");
  EXPECT_EQ(Edited("optimizer {\n  type: SGD\n}\n"),
            "optimizer {\n  # was 0.1\n  lr: 0.02\n  type: SGD\n}\n");
  EXPECT_EQ(EditedConfig("train.pbtxt", "epochs: 3\n", {{"seed", "4", ""}}),
            "epochs: 3\nseed: 4\n");
}

TEST(EditedConfig, GoesDownToTheInnermostMessage) {
  const auto edited = [](const std::string& text) {
    return EditedConfig("train.pbtxt", text, {{"data.images.cache", "ENCODED", "was OFF"}});
  };
  EXPECT_EQ(edited("data { images { cache: OFF } }"),
            "# was OFF\ndata { images { cache: ENCODED } }");
  EXPECT_EQ(edited("data {\n  images {\n    size: 32\n  }\n}\n"),
            "data {\n  images {\n    # was OFF\n    cache: ENCODED\n    size: 32\n  }\n}\n");
  EXPECT_EQ(edited("data {\n  format: IMAGES\n}\n"),
            "data {\n  # was OFF\n  images { cache: ENCODED }\n  format: IMAGES\n}\n");
  EXPECT_EQ(edited("seed: 3\n"), "seed: 3\n# was OFF\ndata { images { cache: ENCODED } }\n");
}

TEST(EditedConfig, SetsSeveralFieldsAndNoOther) {
  const std::string text =
      "optimizer { type: SGD lr: 0.1 momentum: 0.9 }\nschedule { type: COSINE }\n";
  const std::string edited = EditedConfig("train.pbtxt", text,
                                          {{"optimizer.lr", "0.02", "one"},
                                           {"schedule.warmup_steps", "69", "two"},
                                           {"epochs", "4", "three"}});
  std::string why;
  const config::Config config = ParseText(edited, why);
  EXPECT_EQ(why, "");
  EXPECT_EQ(config.optimizer().lr(), 0.02);
  EXPECT_EQ(config.optimizer().momentum(), 0.9);
  EXPECT_EQ(config.optimizer().type(), config::Optimizer::SGD);
  EXPECT_EQ(config.schedule().warmup_steps(), 69);
  EXPECT_EQ(config.schedule().type(), config::Schedule::COSINE);
  EXPECT_EQ(config.epochs(), 4);
}

TEST(FieldText, IsWhatAConfigHas) {
  std::string why;
  const config::Config config =
      ParseText("optimizer { lr: 0.02 } data { images { size: 32 } }", why);
  EXPECT_EQ(FieldText(config, "optimizer.lr"), "0.02");
  EXPECT_EQ(FieldText(config, "data.images.size"), "32");
  EXPECT_EQ(FieldText(config, "data.images.cache"), "OFF");
  EXPECT_EQ(FieldText(config, "loader.threads"), "-1");
}

TEST(EditedConfig, SaysWhatIsNoConfig) { EXPECT_THROW(Edited("optimizer {"), Error); }

}  // namespace
}  // namespace lockstep
