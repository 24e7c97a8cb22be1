#include "launch/folds/fold_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

using testing::ElementsAre;

TEST(FoldPlan, DividesTheCoresAmongTheFolds) {
  FoldPlan plan{
      .program = {"lockstep", "train", "a.pbtxt"}, .run_dir = "r", .count = 5, .cores = 8};
  EXPECT_EQ(plan.SideBySide(), 5);
  EXPECT_THAT(plan.CommandOf(3, 0, "r/fold-3"),
              ElementsAre("env", "OMP_NUM_THREADS=1", "lockstep", "train", "a.pbtxt", "--set",
                          "data.validation_fraction=0", "--set", "data.folds.count=5", "--set",
                          "data.folds.fold=3", "--set", "run_dir=r/fold-3"));
  plan.asked = 2;
  EXPECT_EQ(plan.SideBySide(), 2);
  EXPECT_EQ(plan.CommandOf(4, 1, "r/fold-4")[1], "OMP_NUM_THREADS=4");
  plan.asked = 9;
  EXPECT_EQ(plan.SideBySide(), 5);
}

TEST(FoldPlan, GivesEachFoldAGpu) {
  FoldPlan plan{.program = {"l"}, .count = 3, .gpus = {"GPU-a", "GPU-b"}, .cores = 8};
  EXPECT_EQ(plan.SideBySide(), 2);
  EXPECT_EQ(plan.CommandOf(0, 0, "r")[1], "CUDA_VISIBLE_DEVICES=GPU-a");
  EXPECT_EQ(plan.CommandOf(1, 1, "r")[1], "CUDA_VISIBLE_DEVICES=GPU-b");
  EXPECT_EQ(plan.CommandOf(2, 1, "r")[1], "CUDA_VISIBLE_DEVICES=GPU-b");
  plan.starts_ranks = true;
  EXPECT_EQ(plan.SideBySide(), 1);
  EXPECT_EQ(plan.CommandOf(0, 0, "r")[1], "l");
}

TEST(WithoutOptions, LeavesOutOptionsAndTheirValues) {
  EXPECT_THAT(
      WithoutOptions({"-n", "2", "train", "--folds", "5", "a", "--side-by-side=3", "--fresh"},
                     {"--folds", "--side-by-side"}),
      ElementsAre("-n", "2", "train", "a", "--fresh"));
}

}  // namespace
}  // namespace lockstep
