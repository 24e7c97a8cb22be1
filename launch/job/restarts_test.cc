#include "launch/job/restarts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/testing/test_files.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

constexpr int kPeer = static_cast<int>(ExitStatus::kPeer);

TEST(Restarts, AsManyAsAllowed) {
  Restarts restarts(2);
  EXPECT_TRUE(restarts.After(kPeer, 100).again);
  EXPECT_TRUE(restarts.After(kPeer, 200).again);
  EXPECT_EQ(restarts.count(), 2);
  const Restarts::Decision last = restarts.After(kPeer, 300);
  EXPECT_FALSE(last.again);
  EXPECT_THAT(last.why, HasSubstr("--restarts allows no more than 2"));
  EXPECT_EQ(restarts.count(), 2);
}

TEST(Restarts, NotWhereItGetsNoFurther) {
  Restarts restarts(100);
  EXPECT_TRUE(restarts.After(kPeer, 100).again);
  EXPECT_TRUE(restarts.After(kPeer, 103).again);  // at most 8 steps beyond 100: no progress
  const Restarts::Decision third = restarts.After(kPeer, 98);
  EXPECT_FALSE(third.again);
  EXPECT_THAT(third.why, HasSubstr("failed 3 times and came no further than step 103"));
}

TEST(Restarts, NorBeforeItHasBegun) {
  Restarts restarts(100);
  EXPECT_TRUE(restarts.After(kPeer, 0).again);
  EXPECT_TRUE(restarts.After(kPeer, 0).again);
  EXPECT_FALSE(restarts.After(kPeer, 0).again);
}

TEST(Restarts, WaitLongerInOnePlace) {
  Restarts restarts(100);
  EXPECT_EQ(restarts.After(kPeer, 100).delay_s, 1);
  EXPECT_EQ(restarts.After(kPeer, 100).delay_s, 5);
  EXPECT_EQ(restarts.After(kPeer, 200).delay_s, 1);
  EXPECT_EQ(restarts.After(kPeer, 200).delay_s, 5);
}

TEST(Restarts, NotForWhatIsWrongForGood) {
  Restarts restarts(100);
  for (const ExitStatus status : {ExitStatus::kUsage, ExitStatus::kData}) {
    const Restarts::Decision decision = restarts.After(static_cast<int>(status), 100);
    EXPECT_FALSE(decision.again);
    EXPECT_THAT(decision.why, HasSubstr("would come again"));
  }
}

TEST(FurthestStep, IsOfTheLastStart) {
  const std::string run_dir = NewFolder();
  EXPECT_EQ(FurthestStep(run_dir), 0);
  WriteFile(run_dir + "/log.jsonl",
            "{\"event\":\"start\"}\n{\"event\":\"step\",\"step\":500}\n"
            "{\"event\":\"start\"}\n{\"event\":\"resume\",\"step\":40}\n");
  EXPECT_EQ(FurthestStep(run_dir), 40);
  WriteFile(run_dir + "/log.jsonl",
            "{\"event\":\"start\"}\n{\"event\":\"step\",\"step\":1}\n{\"event\":\"step\",\"st");
  EXPECT_EQ(FurthestStep(run_dir), 1);
}

}  // namespace
}  // namespace lockstep
