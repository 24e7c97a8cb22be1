// Tests the flight recorder, and the texts that flight_story.h makes from several ranks' records.

#include "comm/flight_recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "comm/watch/flight_story.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

// Makes an empty run folder for the current test, and returns its path.
std::string Folder() {
  const std::string name = testing::UnitTest::GetInstance()->current_test_info()->name();
  const std::string folder = testing::TempDir() + "/flight_" + name;
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder + "/flight");
  return folder;
}

template <typename Act>
std::string ErrorOf(ExitStatus status, const Act& act) {
  try {
    act();
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), status);
    return error.what();
  }
  return "no error";
}

TEST(FlightRecorder, KeepsWhatWasEnqueuedAndDone) {
  FlightRecorder recorder;
  const Label label = recorder.MakeLabel("bucket 0: fc.weight");
  EXPECT_EQ(recorder.MakeLabel("bucket 0: fc.weight").id, label.id);
  recorder.SetStep(3);
  EXPECT_EQ(recorder.Enqueued(Channel::kNccl, Op::kAllReduce, 400, label), 1u);
  EXPECT_EQ(recorder.Enqueued(Channel::kNccl, Op::kBroadcast, 8, {}), 2u);
  EXPECT_EQ(recorder.Enqueued(Channel::kMpi, Op::kBarrier, 0, {}), 1u);
  recorder.Done(Channel::kNccl, 1);
  EXPECT_EQ(recorder.State(Channel::kNccl).enqueued, 2u);
  EXPECT_EQ(recorder.State(Channel::kNccl).done, 1u);
  const Flight flight = recorder.Around(10, 10);
  const std::vector<FlightRecord>& records = flight.of(Channel::kNccl).records;
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].label, "bucket 0: fc.weight");
  EXPECT_EQ(records[0].step, 3);
  EXPECT_GE(records[0].done_ns, records[0].enqueued_ns);
  EXPECT_EQ(records[1].done_ns, 0);
}

TEST(FlightRecorder, KeepsTheLastOfMany) {
  FlightRecorder recorder;
  for (uint64_t i = 1; i <= 10'000; ++i) {
    recorder.Enqueued(Channel::kMpi, Op::kAllReduce, i, {});
    recorder.Done(Channel::kMpi, i);
  }
  const std::vector<FlightRecord> all = recorder.Around(100'000, 0).of(Channel::kMpi).records;
  EXPECT_GT(all.size(), 4000u);
  EXPECT_EQ(all.back().sequence, 10'000u);
  for (const FlightRecord& record : all) EXPECT_EQ(record.bytes, record.sequence);
  EXPECT_EQ(recorder.Around(3, 0).of(Channel::kMpi).records.front().sequence, 9'998u);
}

TEST(FlightRecorder, HasRoomForEveryLabelOrSaysOther) {
  FlightRecorder recorder;
  for (int i = 0; i < 2000; ++i) recorder.MakeLabel("label " + std::to_string(i));
  recorder.Enqueued(Channel::kMpi, Op::kBarrier, 0, recorder.MakeLabel("label 7"));
  recorder.Enqueued(Channel::kMpi, Op::kBarrier, 0, recorder.MakeLabel("label 1999"));
  recorder.Enqueued(Channel::kMpi, Op::kBarrier, 0, recorder.MakeLabel(std::string(500, 'x')));
  const std::vector<FlightRecord> records = recorder.Around(0, 10).of(Channel::kMpi).records;
  EXPECT_EQ(records[0].label, "label 7");
  EXPECT_EQ(records[1].label, "other");
  FlightRecorder fresh;
  fresh.Enqueued(Channel::kMpi, Op::kBarrier, 0, fresh.MakeLabel(std::string(500, 'x')));
  EXPECT_EQ(fresh.Around(0, 10).of(Channel::kMpi).records[0].label, std::string(159, 'x'));
}

TEST(FlightRecorder, ChainsTellRanksThatWentDifferentWays) {
  FlightRecorder a, b, c;
  // Labels are compared by their text, not by the number that a rank gave them.
  b.MakeLabel("something that only this rank knows");
  for (FlightRecorder* recorder : {&a, &b, &c}) {
    for (int i = 0; i < 1100; ++i) {
      const bool differs = recorder == &c && i == 100;
      recorder->Enqueued(Channel::kMpi, Op::kAllReduce, 400,
                         recorder->MakeLabel(differs ? "bucket 1" : "bucket 0"));
    }
  }
  EXPECT_EQ(a.State(Channel::kMpi).mark, 1024u);
  EXPECT_EQ(a.State(Channel::kMpi).mark_chain, b.State(Channel::kMpi).mark_chain);
  EXPECT_NE(a.State(Channel::kMpi).mark_chain, c.State(Channel::kMpi).mark_chain);
}

TEST(FlightRecorder, OutlivesAKilledProcess) {
  const std::string folder = Folder();
  const pid_t child = fork();
  if (child == 0) {
    FlightRecorder recorder;
    recorder.SetRank(1, 2);
    recorder.Enqueued(Channel::kMpi, Op::kBroadcast, 100, recorder.MakeLabel("before the file"));
    recorder.Done(Channel::kMpi, 1);
    recorder.MoveTo(FlightPath(folder, 1));
    recorder.Enqueued(Channel::kMpi, Op::kAllReduce, 200, recorder.MakeLabel("after it"));
    kill(getpid(), SIGKILL);
  }
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));
  const std::vector<Flight> flights = ReadFlights(folder).read;
  ASSERT_EQ(flights.size(), 1u);
  EXPECT_EQ(flights[0].rank, 1);
  const std::vector<FlightRecord>& records = flights[0].of(Channel::kMpi).records;
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].label, "before the file");
  EXPECT_EQ(records[1].label, "after it");
  EXPECT_EQ(records[1].done_ns, 0);
}

TEST(FlightRecorder, SaysWhyItsFileCannotBeMade) {
  FlightRecorder recorder;
  EXPECT_THAT(
      ErrorOf(ExitStatus::kCheckpoint, [&] { recorder.MoveTo("/nowhere/rank-0"); }),
      HasSubstr("/nowhere/rank-0: the flight record cannot be made: nowhere: No such file"));
}

TEST(FlightRecorder, RefusesWhatIsNoRecord) {
  const std::string folder = Folder();
  EXPECT_THAT(ErrorOf(ExitStatus::kUsage, [&] { ReadFlights(folder); }),
              HasSubstr("no flight records here"));
  FlightRecorder().MoveTo(folder + "/flight/rank-0");
  EXPECT_EQ(ReadFlights(folder).read.size(), 1u);
  std::filesystem::resize_file(folder + "/flight/rank-0", 1000);
  EXPECT_THAT(ErrorOf(ExitStatus::kData, [&] { ReadFlights(folder); }),
              HasSubstr("rank-0: no flight record, or one that is cut short"));
  std::ofstream(folder + "/flight/rank-0") << "hello";
  EXPECT_THAT(ErrorOf(ExitStatus::kData, [&] { ReadFlights(folder); }),
              HasSubstr("no flight record"));
}

TEST(FlightRecorder, OneThatIsDamagedDoesNotHideTheOthers) {
  const std::string folder = Folder();
  FlightRecorder().MoveTo(folder + "/flight/rank-1");
  std::ofstream(folder + "/flight/rank-0") << "hello";
  std::filesystem::create_directory(folder + "/flight/rank-2");
  const Flights flights = ReadFlights(folder);
  EXPECT_EQ(flights.read.size(), 1u);
  EXPECT_THAT(flights.damaged,
              UnorderedElementsAre(HasSubstr("rank-0: no flight record"),
                                   HasSubstr("rank-2: cannot be read: it is a folder")));
}

// Returns the record of a rank that has enqueued `calls`, of which the first `done` are done.
Flight FlightWith(int rank, const std::vector<std::pair<Op, std::string>>& calls, uint64_t done,
                  int step = 31) {
  FlightRecorder recorder;
  recorder.SetRank(rank, 3);
  recorder.SetStep(step);
  for (const auto& [op, label] : calls) {
    recorder.Enqueued(Channel::kMpi, op, 4160, recorder.MakeLabel(label));
  }
  if (done > 0) recorder.Done(Channel::kMpi, done);
  return recorder.Around(100, 100);
}

const std::pair<Op, std::string> kFirst{Op::kAllReduce, "bucket 0: fc.bias"};
const std::pair<Op, std::string> kSecond{Op::kAllReduce, "bucket 1: fc.weight"};

TEST(FlightStory, NamesTheRankThatHasNotCome) {
  const std::vector<Flight> flights{FlightWith(0, {kFirst, kSecond}, 1), FlightWith(1, {kFirst}, 1),
                                    FlightWith(2, {kFirst, kSecond}, 1)};
  EXPECT_EQ(
      Disagreement(flights),
      "rank 1 has not come to MPI collective 2 of step 31, all-reduce of 4160 bytes (bucket 1: "
      "fc.weight); rank 1 is at step 31, after MPI collective 1: all-reduce of 4160 bytes "
      "(bucket 0: fc.bias)");
}

TEST(FlightStory, NamesTheRankThatMadeAnotherCall) {
  const std::vector<Flight> flights{FlightWith(0, {kFirst, kSecond}, 1),
                                    FlightWith(1, {kFirst, kSecond}, 1),
                                    FlightWith(2, {kSecond}, 0)};
  EXPECT_EQ(
      Disagreement(flights),
      "rank 2 made another call than ranks 0, 1 as MPI collective 1 of step 31: all-reduce of "
      "4160 bytes (bucket 1: fc.weight) instead of all-reduce of 4160 bytes (bucket 0: fc.bias)");
}

TEST(FlightStory, SaysWhereAllWaitAndWhereNothingIsWrong) {
  const Flight waiting = FlightWith(0, {kFirst, kSecond}, 1);
  EXPECT_THAT(*Disagreement({waiting, FlightWith(1, {kFirst, kSecond}, 1)}),
              HasSubstr("MPI collective 2 of step 31 does not end although every rank has come"));
  EXPECT_EQ(Disagreement({FlightWith(0, {kFirst}, 1), FlightWith(1, {kFirst}, 1)}), std::nullopt);
  EXPECT_EQ(WhereIs(FlightWith(0, {}, 0)), "before its first collective");
  EXPECT_EQ(WhereIs(waiting),
            "at step 31, in MPI collective 2: all-reduce of 4160 bytes (bucket 1: fc.weight)");
}

// Checks that no rank is blamed for a collective that all ranks have passed. Rank 1 has enqueued collective 1, but has
// not recorded that the collective is done, as if rank 1 had been killed before it could record this.
TEST(FlightStory, BlamesNoCollectiveThatAllHavePassed) {
  EXPECT_EQ(Disagreement({FlightWith(0, {kFirst}, 1), FlightWith(1, {kFirst}, 0)}), std::nullopt);
  EXPECT_THAT(*Disagreement({FlightWith(0, {kFirst, kSecond}, 1), FlightWith(1, {kFirst}, 0)}),
              HasSubstr("rank 1 has not come to MPI collective 2"));
}

TEST(FlightStory, TellsTheLastCollectivesOfAllRanks) {
  Flight first = FlightWith(0, {kFirst, kSecond}, 1);
  first.verdict = "rank 1 has not come";
  const std::string story = Story({first, FlightWith(1, {kFirst}, 1)}, 10);
  EXPECT_THAT(story, HasSubstr("verdict: rank 1 has not come\n"));
  EXPECT_THAT(story, HasSubstr("records of 2 of 3 ranks"));
  EXPECT_THAT(story, testing::ContainsRegex("2 +31  waits since .* -  +all-reduce of 4160 bytes"));
  EXPECT_THAT(Story({first}, 1), testing::Not(HasSubstr("fc.bias")));
}

}  // namespace
}  // namespace lockstep
