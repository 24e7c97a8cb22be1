#include "observe/verdict/rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

std::vector<std::string> RulesOf(const Signs& signs) {
  std::vector<std::string> rules;
  for (const RunFinding& finding : FindingsOf(signs)) {
    EXPECT_NE(finding.words, "") << finding.rule;
    EXPECT_NE(finding.remedy, "") << finding.rule;
    rules.push_back(finding.rule);
  }
  return rules;
}

// Returns the signs of a run without problems.
Signs Healthy() {
  Signs signs{
      .gpu_memory_share = 0.6, .cpu_use = 0.2, .memory_left = 64e9, .faster_precision = "BF16"};
  signs.seconds.wall_s = 100;
  signs.seconds.ideal_s = 98;
  signs.seconds.busy_share = 0.97;
  signs.seconds.flops_share = 0.45;
  return signs;
}

// Returns healthy signs, except that `seconds` of 100 seconds are lost to `loss`.
Signs With(Loss loss, double seconds) {
  Signs signs = Healthy();
  signs.seconds.lost_s[static_cast<size_t>(loss)] = seconds;
  signs.seconds.cause = loss;
  signs.seconds.verdict = "lost";
  signs.seconds.remedy = "a remedy";
  return signs;
}

TEST(Rules, SayNothingOfAHealthyRun) { EXPECT_THAT(RulesOf(Healthy()), IsEmpty()); }

TEST(Rules, SayNothingOfWhatWasNotMeasured) { EXPECT_THAT(RulesOf({}), IsEmpty()); }

TEST(Rules, ALowUseAloneIsNoFault) {
  Signs signs = Healthy();
  signs.seconds.busy_share = 0.3;
  EXPECT_THAT(RulesOf(signs), IsEmpty());
}

TEST(Rules, NameWhatALowUseIsLostTo) {
  Signs signs = With(Loss::kCommunication, 60);
  signs.seconds.busy_share = 0.38;
  signs.cpu_use = 0.9;
  EXPECT_THAT(RulesOf(signs), ElementsAre("low_use"));
  const RunFinding finding = FindingsOf(signs).front();
  EXPECT_EQ(finding.words,
            "a kernel ran on the GPU in 38 % of the time; 60 % is lost to communication");
  EXPECT_EQ(finding.remedy, "a remedy");
  signs.seconds.busy_share = 0.7;
  EXPECT_THAT(RulesOf(signs), ElementsAre("middling_use"));
  signs.seconds.busy_share = 0.85;
  EXPECT_THAT(RulesOf(signs), IsEmpty());
}

TEST(Rules, SeeThatCoresAreIdleWhileSamplesAreLate) {
  Signs signs = With(Loss::kReading, 20);
  EXPECT_THAT(RulesOf(signs), ElementsAre("cores_idle"));
  signs.cpu_use = 0.8;
  EXPECT_THAT(RulesOf(signs), IsEmpty());
}

TEST(Rules, SeeThatGpuAndCoresAreIdle) {
  Signs signs = With(Loss::kCheckpoints, 70);
  signs.seconds.busy_share = 0.25;
  EXPECT_THAT(RulesOf(signs), ElementsAre("low_use", "both_low"));
}

TEST(Rules, SeeCopiesThatAreNotHidden) {
  EXPECT_THAT(RulesOf(With(Loss::kCopying, 15)), ElementsAre("transfers"));
  EXPECT_THAT(RulesOf(With(Loss::kCopying, 6)), IsEmpty());
}

TEST(Rules, SeeMemoryThatIsFull) {
  Signs signs = Healthy();
  signs.gpu_memory_share = 0.93;
  signs.accumulation = 4;
  EXPECT_THAT(RulesOf(signs), ElementsAre("gpu_memory_full"));
  EXPECT_EQ(FindingsOf(signs).front().remedy, "accumulation: 4 -> 8");
}

TEST(Rules, SeeABatchThatIsSmallForTheGpu) {
  Signs signs = Healthy();
  signs.gpu_memory_share = 0.05;
  EXPECT_THAT(RulesOf(signs), IsEmpty());  // the GPU computes at 45 % of its peak
  signs.seconds.flops_share = 0.02;
  EXPECT_THAT(RulesOf(signs), ElementsAre("gpu_memory_idle"));
  EXPECT_THAT(FindingsOf(signs).front().remedy, HasSubstr("global_batch"));
  signs.accumulation = 8;
  EXPECT_EQ(FindingsOf(signs).front().remedy, "accumulation: 8 -> 1");
}

TEST(Rules, SeeMemoryThatGrows) {
  Signs signs = Healthy();
  signs.memory_growth = 2 << 20;
  signs.memory_left = double{1 << 30};
  EXPECT_THAT(RulesOf(signs), ElementsAre("memory_grows"));
  EXPECT_EQ(FindingsOf(signs).front().words,
            "the process's memory grows by 2 MiB a step, and is full after 512 more steps");
}

TEST(Rules, NameTensorsThatKeepTheHostsMemoryGrowing) {
  Signs signs = Healthy();
  signs.memory_growth = 2 << 20;
  signs.growth.kept = {.is_known = true, .bytes = 2 << 20, .place = "the forward pass of fc1"};
  EXPECT_EQ(FindingsOf(signs).front().words,
            "the process's memory grows by 2 MiB a step, in tensors that the forward pass of fc1 "
            "allocates and keeps, and is full after 30518 more steps");
  EXPECT_THAT(FindingsOf(signs).front().remedy, HasSubstr("detach()"));

  signs.growth.kept.bytes = 1 << 10;  // too little to explain the growth
  EXPECT_THAT(FindingsOf(signs).front().words, HasSubstr("not in tensors of its steps"));
  EXPECT_THAT(FindingsOf(signs).front().remedy, HasSubstr("free it"));

  signs.growth.kept.bytes = 2 << 20;
  signs.growth.on_gpu = true;  // the kept tensors are on the GPU, not in the host's memory
  EXPECT_THAT(FindingsOf(signs).front().words, Not(HasSubstr("tensors")));
}

TEST(Rules, SeeTensorsOnTheGpuThatGrow) {
  Signs signs = Healthy();
  signs.growth = {.on_gpu = true,
                  .kept = {.is_known = true, .bytes = 1 << 20, .place = "the backward pass"},
                  .device_bytes = 1 << 20,
                  .device_steps_left = 700};
  EXPECT_THAT(RulesOf(signs), ElementsAre("device_memory_grows"));
  EXPECT_EQ(FindingsOf(signs).front().words,
            "the tensors on the GPU grow by 1 MiB a step, in those that the backward pass "
            "allocates and keeps, and fill it after 700 more steps");
  signs.growth.kept.bytes = 0;
  EXPECT_THAT(FindingsOf(signs).front().words, HasSubstr("outside its steps"));
  signs.growth.kept.is_known = false;
  EXPECT_THAT(FindingsOf(signs).front().words, Not(HasSubstr("outside")));
  signs.growth.device_bytes = 0;
  EXPECT_THAT(RulesOf(signs), IsEmpty());
}

TEST(Rules, NameTheOperationsThatWaitForTheGpu) {
  Signs signs = Healthy();
  signs.syncs = {"aten::item", "aten::nonzero"};
  EXPECT_THAT(RulesOf(signs), ElementsAre("synchronizations"));
  EXPECT_THAT(FindingsOf(signs).front().words, HasSubstr("aten::item, aten::nonzero"));
}

TEST(Rules, SeeTensorCoresThatAreNotUsed) {
  Signs signs = Healthy();
  signs.is_fp32 = true;
  signs.seconds.flops_share = 0.6;
  EXPECT_THAT(RulesOf(signs), ElementsAre("fp32"));
  EXPECT_EQ(FindingsOf(signs).front().remedy, "precision: BF16");
  signs.seconds.flops_share = 0.1;
  EXPECT_THAT(RulesOf(signs), IsEmpty());
  signs.seconds.flops_share = 0.6;
  signs.faster_precision = "";
  EXPECT_THAT(RulesOf(signs), IsEmpty());
}

}  // namespace
}  // namespace lockstep
