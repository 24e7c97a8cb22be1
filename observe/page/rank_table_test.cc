#include "observe/page/rank_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/testing/test_files.h"
#include "comm/flight_recorder.h"
#include "comm/watch/flight_story.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

// Returns the folder of a run of two ranks that make `collectives` collectives in step 3. Rank 1 enqueues each
// collective last.
std::string RunOfTwoRanks(int collectives) {
  std::string folder = NewFolder();
  std::filesystem::create_directories(folder + "/flight");
  FlightRecorder first;
  FlightRecorder second;
  for (int rank : {0, 1}) {
    FlightRecorder& recorder = rank == 0 ? first : second;
    recorder.SetRank(rank, 2);
    recorder.MoveTo(FlightPath(folder, rank));
    recorder.SetStep(3);
  }
  for (int i = 0; i < collectives; ++i) {
    const uint64_t first_number = first.Enqueued(Channel::kMpi, Op::kAllReduce, 64, {});
    const uint64_t second_number = second.Enqueued(Channel::kMpi, Op::kAllReduce, 64, {});
    first.Done(Channel::kMpi, first_number);
    second.Done(Channel::kMpi, second_number);
  }
  return folder;
}

TEST(RanksJson, SetsRanksSideBySide) {
  const auto json = RanksJson(RunOfTwoRanks(50));
  EXPECT_EQ(json.at("world_size"), 2);
  EXPECT_EQ(json.at("collectives"), 50);
  EXPECT_EQ(json.at("disagreement"), "");
  const auto& ranks = json.at("ranks");
  ASSERT_EQ(ranks.size(), 2);
  EXPECT_EQ(ranks[1].at("rank"), 1);
  EXPECT_EQ(ranks[1].at("step"), 3);
  EXPECT_THAT(ranks[1].at("where").get<std::string>(), HasSubstr("MPI collective 50"));
  // The clock may give both ranks the same time, and then either rank may count as the last.
  EXPECT_GE(ranks[1].at("late_ms").get<double>(), ranks[0].at("late_ms").get<double>());
  EXPECT_NEAR(ranks[0].at("last_share").get<double>() + ranks[1].at("last_share").get<double>(), 1,
              1e-9);
  EXPECT_GE(ranks[0].at("wait_ms").get<double>(), ranks[1].at("wait_ms").get<double>());
}

TEST(RanksJson, IsNullWithoutRecords) { EXPECT_TRUE(RanksJson(NewFolder()).is_null()); }

TEST(RanksJson, SaysWhatIsDamaged) {
  const std::string folder = RunOfTwoRanks(1);
  std::filesystem::resize_file(FlightPath(folder, 0), 100);
  auto json = RanksJson(folder);
  ASSERT_EQ(json.at("ranks").size(), 1);
  EXPECT_EQ(json.at("ranks")[0].at("rank"), 1);
  ASSERT_EQ(json.at("damaged").size(), 1);
  EXPECT_THAT(json.at("damaged")[0].get<std::string>(), HasSubstr("flight/rank-0"));
  std::filesystem::resize_file(FlightPath(folder, 1), 0);
  json = RanksJson(folder);
  EXPECT_EQ(json.at("ranks").size(), 0);
  EXPECT_EQ(json.at("damaged").size(), 1);
}

}  // namespace
}  // namespace lockstep
